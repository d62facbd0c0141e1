"""Row plans and chunk lengths: tables of numbers."""

from __future__ import annotations

import pytest

from support.scheduler_runs import PENALIZED, request
from surefoot.config import SchedulerConfig
from surefoot.core.step import FromStep
from surefoot.scheduling.planning import chunk_lengths, plan_after, plan_chunk, plan_round
from surefoot.scheduling.row import Row


def row_of(row_id: int, num_prompt: int, num_computed: int = 0, num_emitted: int = 0) -> Row:
    row = Row(request(row_id, range(1, num_prompt + 1), 99, PENALIZED))
    row.tokens += range(101, 101 + num_emitted)
    row.num_computed = num_computed
    row.window = 0
    return row


@pytest.mark.parametrize(
    ("num_computed", "length", "feed", "sample_from"),
    [
        (0, 5, (1, 2, 3, 4, 5), 4),
        (0, 3, (1, 2, 3), 3),  # samples nothing
        (3, 2, (4, 5), 1),
        (4, 1, (5,), 0),
    ],
)
def test_chunks(num_computed: int, length: int, feed: tuple[int, ...], sample_from: int) -> None:
    plan = plan_chunk(row_of(1, 5, num_computed), length)
    assert (plan.feed, plan.start, plan.sample_from) == (feed, num_computed, sample_from)


def test_rounds_and_what_follows_them() -> None:
    row = row_of(1, 5, 6, 2)
    assert row.decoding
    plan = plan_round(row, (7, 8))
    assert (plan.feed, plan.start, plan.sample_from) == ((102, 7, 8), 6, 0)
    assert (tuple(plan.sampling.prompt_ids), plan.sampling.output_ids) == (
        (1, 2, 3, 4, 5),
        (101, 102),
    )
    after = plan_after(row, 9)
    assert (after.feed, after.start, after.sample_from) == (FromStep(9), 7, 0)


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        # (prompt, computed, emitted) of rows 0, 1, ...; 4 beside a decoding row, else 10
        ([(30, 0, 0)], {0: 10}),
        ([(30, 25, 0)], {0: 5}),
        ([(3, 0, 0), (4, 0, 0), (9, 0, 0)], {0: 3, 1: 4, 2: 3}),
        ([(10, 0, 0), (9, 0, 0)], {0: 10}),
        ([(5, 5, 1)], {}),
        ([(5, 5, 1), (30, 0, 0)], {1: 4}),
        ([(3, 0, 0), (5, 5, 1), (30, 0, 0)], {0: 3, 2: 1}),
        ([(5, 0, 3)], {0: 8}),  # preempted: reads its prompt and its emitted tokens
    ],
)
def test_chunk_lengths(rows: list[tuple[int, int, int]], lengths: dict[int, int]) -> None:
    config = SchedulerConfig(chunk_busy=4, chunk_alone=10)
    made = [row_of(index, *numbers) for index, numbers in enumerate(rows)]
    assert chunk_lengths(made, config) == lengths
