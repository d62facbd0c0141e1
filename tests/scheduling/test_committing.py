"""One row moved by one result, as integers: what is kept, what the KV holds, what counts."""

from __future__ import annotations

import pytest

from support.scheduler_runs import request
from surefoot.core.events import FinishReason
from surefoot.core.step import FromStep, RowPlan, RowResult, RowSampling
from surefoot.scheduling.committing import Committed, commit_result, draft_of
from surefoot.scheduling.row import Row

PROMPT = (1, 2, 3, 4)
CAPACITY = 64


def row_with(*emitted: int, max_tokens: int = 9, end_ids: tuple[int, ...] = ()) -> Row:
    """A decoding row whose last token is not in the KV yet."""
    row = Row(request(1, PROMPT, max_tokens, end_ids=end_ids))
    row.tokens.extend(emitted)
    row.num_computed = len(row.tokens) - 1
    return row


def plan(row: Row, feed: tuple[int, ...] | FromStep, sample_from: int = 0) -> RowPlan:
    return RowPlan(1, 0, feed, row.num_computed, sample_from, RowSampling(row.request.sampling))


def commit(row: Row, feed: tuple[int, ...], sampled: tuple[int, ...]) -> Committed:
    done = commit_result(row, plan(row, feed), RowResult(1, sampled), CAPACITY, 2.5)
    assert done is not None
    return done


@pytest.mark.parametrize(
    ("draft", "sampled", "kept", "accepted", "computed"),
    [
        ((), (20,), (20,), 0, 5),
        ((20,), (20, 21), (20, 21), 1, 6),
        ((20,), (30, 21), (30,), 0, 5),
        ((20, 21, 22), (20, 21, 30, 40), (20, 21, 30), 2, 7),
        ((20, 21, 22), (20, 21, 22, 23), (20, 21, 22, 23), 3, 8),
    ],
)
def test_the_agreed_prefix_and_one_more(
    draft: tuple[int, ...],
    sampled: tuple[int, ...],
    kept: tuple[int, ...],
    accepted: int,
    computed: int,
) -> None:
    row = row_with(10)
    done = commit(row, (10, *draft), sampled)
    assert (done.tokens, done.accepted, done.reason) == (kept, accepted, None)
    assert (tuple(row.tokens), row.num_computed) == ((*PROMPT, 10, *kept), computed)
    assert (row.drafts.rounds, row.drafts.proposed, row.drafts.accepted) == (
        (1, len(draft), accepted) if draft else (0, 0, 0)
    )
    assert row.clock.last_token == 2.5


@pytest.mark.parametrize(
    ("max_tokens", "end_ids", "kept", "counts", "reason"),
    [
        (5, (), (20, 21, 22, 23), (3, 3), FinishReason.LENGTH),  # a round fits the room exactly
        (9, (21,), (20, 21), (2, 2), FinishReason.STOP),
        (9, (20,), (20,), (1, 1), FinishReason.STOP),
        (9, (23,), (20, 21, 22, 23), (3, 3), FinishReason.STOP),  # the correction itself: no cut
    ],
)
def test_a_stop_inside_a_round_cuts_tokens_and_counts(
    max_tokens: int,
    end_ids: tuple[int, ...],
    kept: tuple[int, ...],
    counts: tuple[int, int],
    reason: FinishReason,
) -> None:
    row = row_with(10, max_tokens=max_tokens, end_ids=end_ids)
    done = commit(row, (10, 20, 21, 22), (20, 21, 22, 23))
    assert (done.tokens, done.reason) == (kept, reason)
    assert (row.drafts.proposed, row.drafts.accepted) == counts


def test_a_prompt_chunk_moves_the_kv_alone() -> None:
    row = Row(request(1, PROMPT, 4))
    chunk = plan(row, (1, 2), sample_from=2)
    assert commit_result(row, chunk, RowResult(1, ()), CAPACITY, 1.0) is None
    assert (row.num_computed, len(row.tokens), row.clock.last_token) == (2, 4, None)


def test_a_draft_is_what_is_fed_behind_the_first_sampled_position() -> None:
    row = row_with(10)
    assert draft_of(plan(row, (10, 20, 21))) == (20, 21)
    assert draft_of(plan(row, (10,))) == ()
    assert draft_of(plan(row, FromStep(3))) == ()
