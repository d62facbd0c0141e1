"""Rows to row plans: pure functions, the same rows always give the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surefoot.config import SchedulerConfig
from surefoot.core.step import FromStep, RowPlan
from surefoot.scheduling.row import Row


def plan_chunk(row: Row, length: int) -> RowPlan:
    """Feed the next `length` pending tokens; sample one only after the last pending token.

    A row with 5 pending tokens and length 3 feeds 3 and samples nothing, then 2 and samples one.
    """
    assert 1 <= length <= row.num_pending, (length, row.num_pending)
    feed = tuple(row.tokens[row.num_computed : row.num_computed + length])
    sample_from = length - 1 if length == row.num_pending else length
    return _plan(row, feed, row.num_computed, sample_from)


def plan_round(row: Row, draft: Sequence[int] = ()) -> RowPlan:
    """Feed the current token and the draft, sample after each: width `len(draft) + 1`."""
    assert row.decoding, (row.row_id, row.num_pending)
    return _plan(row, (row.tokens[-1], *draft), row.num_computed, 0)


def plan_after(row: Row, step_id: int) -> RowPlan:
    """The step after `step_id`, in flight: feeds the token that one samples, one position on."""
    assert row.decoding, (row.row_id, row.num_pending)
    return _plan(row, FromStep(step_id), row.num_computed + 1, 0)


def chunk_lengths(rows: Iterable[Row], config: SchedulerConfig) -> dict[int, int]:
    """How many prompt tokens each row that is not yet decoding feeds in the next step, by row id.

    Oldest first, out of one budget for all: a step holds at most `chunk_busy` prompt tokens
    while any row decodes, so none waits longer than one such chunk, else `chunk_alone`. Rows the
    budget does not reach are left out.
    """
    rows = list(rows)
    budget = config.chunk_busy if any(row.decoding for row in rows) else config.chunk_alone
    lengths: dict[int, int] = {}
    for row in rows:
        if budget and not row.decoding:
            lengths[row.row_id] = min(row.num_pending, budget)
            budget -= lengths[row.row_id]
    return lengths


def _plan(row: Row, feed: tuple[int, ...] | FromStep, start: int, sample_from: int) -> RowPlan:
    assert row.window is not None, row.row_id
    return RowPlan(row.row_id, row.window, feed, start, sample_from, row.sampling())
