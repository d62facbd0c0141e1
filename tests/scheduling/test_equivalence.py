"""However a request is run, its tokens are those of its definition (`alone`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fakes import ScriptedEngine
from support.scheduler_runs import (
    GREEDY,
    PENALIZED,
    SEEDED,
    Run,
    alone,
    drive,
    request,
    whole_replies,
)
from surefoot.config import SchedulerConfig
from surefoot.core.events import FinishReason
from surefoot.core.request import Request, SamplingParams
from surefoot.core.step import RowPlan, StepPlan
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

SAMPLINGS = [GREEDY, SEEDED, PENALIZED]


def lookup(policy: DraftPolicy | None, **fields: object) -> PromptLookup | None:
    if policy is None:
        return None
    return PromptLookup.from_config(PromptLookupConfig(policy=policy, **fields))  # type: ignore[arg-type]


def five_requests(sampling: SamplingParams) -> list[Request]:
    return [
        request(1, (1, 2, 3), 12, sampling),
        request(2, tuple(range(23)), 9, sampling, end_ids={0, 1}),
        request(3, (1, 2, 1, 2, 1, 2), 20, sampling),
        request(4, (2,), 6, sampling),
        request(5, (1, 2, 3) * 4, 16, sampling, end_ids={2}),
    ]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("max_rows", [1, 2, 3, 5])
@pytest.mark.parametrize("lookahead", [True, False])
@pytest.mark.parametrize("policy", [None, DraftPolicy.GRADED, DraftPolicy.GATED])
def test_batched_chunked_pipelined_speculated_all_equal_alone(
    sampling: SamplingParams, max_rows: int, lookahead: bool, policy: DraftPolicy | None
) -> None:
    for chunk_busy, chunk_alone in [(1, 2), (3, 5), (32, 512)]:
        config = SchedulerConfig(max_rows, 8, chunk_busy, chunk_alone, lookahead)
        run = Run(ScriptedEngine(max_rows, 64, vocab=3), config, lookup(policy))
        run.add(*five_requests(sampling)).finish()
        for one in five_requests(sampling):
            assert run.tokens(one.request_id) == alone(run.engine, one)


@pytest.mark.parametrize("first_tick", range(12))
def test_a_request_that_joins_at_any_tick_changes_nobody(first_tick: int) -> None:
    run = Run(ScriptedEngine(2, 64, vocab=3), None, lookup(DraftPolicy.GRADED))
    early, late = request(1, (1, 2, 3), 14, SEEDED), request(2, (2, 2), 14, SEEDED)
    run.add(early)
    run.tick(first_tick)
    run.add(late).finish()
    assert run.tokens(1) == alone(run.engine, early)
    assert run.tokens(2) == alone(run.engine, late)


Operation = tuple[str, int]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.integers(1, 6)),
        st.tuples(st.just("add"), st.integers(0, 10_000)),
        st.tuples(st.just("cancel"), st.integers(0, 12)),
        st.tuples(st.just("preempt"), st.integers(0, 12)),
    ),
    max_size=25,
)


def made_request(request_id: int, salt: int) -> Request:
    """A request as varied as `salt`: prompt, length, sampling, end ids, speculation."""
    prompt = [(salt // 3**index) % 3 for index in range(1 + salt % 9)]
    end_ids = {0} if salt % 5 == 0 else set()
    return request(
        request_id,
        prompt,
        1 + salt % 13,
        SAMPLINGS[salt % 3],
        end_ids=end_ids,
        speculation=salt % 7 != 0,
    )


def random_fault(salt: int) -> Callable[[StepPlan, RowPlan], str | None]:
    """Some steps fail as a whole, some rows fail at some positions for good."""

    def fault(plan: StepPlan, row: RowPlan) -> str | None:
        if salt and len(plan.rows) > 1 and (plan.step_id * 7 + salt) % 5 == 0:
            return "joint"
        if salt > 2 and (row.row_id + salt) % 4 == 0 and row.end > 9:
            return "for good"
        return None

    return fault


@settings(max_examples=150, deadline=None)
@given(
    operations=OPERATIONS,
    max_rows=st.integers(1, 3),
    chunks=st.sampled_from([(1, 3), (2, 2), (32, 512)]),
    policy=st.sampled_from([None, *DraftPolicy]),
    wait=st.integers(0, 2),
    fault_salt=st.integers(0, 5),
)
def test_any_sequence_of_operations_keeps_the_books_and_the_texts(
    operations: list[Operation],
    max_rows: int,
    chunks: tuple[int, int],
    policy: DraftPolicy | None,
    wait: int,
    fault_salt: int,
) -> None:
    engine = ScriptedEngine(max_rows, 20, vocab=3, fault=random_fault(fault_salt))
    config = SchedulerConfig(max_rows, 100, *chunks)
    run = Run(engine, config, lookup(policy, plain_rounds_before_pipeline=wait))
    requests = drive(run, operations, made_request)
    for one, end in whole_replies(run, engine, requests):
        emitted = run.tokens(one.request_id)
        ended = bool(one.end_ids) and emitted[-1] in one.end_ids
        assert end.reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        timings = end.timings
        assert 0 <= timings.draft_n_accepted <= timings.draft_n
        assert timings.draft_n_accepted + min(timings.draft_rounds, 1) <= len(emitted)
    assert all(window.tokens == [] for window in engine.windows)
