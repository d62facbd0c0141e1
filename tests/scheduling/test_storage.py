"""Memory: who waits for it, who makes way, and that the books add up whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fakes import ScriptedEngine
from support.paged_runs import cached, num_fed, paged_engine, paged_run, paged_storage
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
from surefoot.cache.budget import KvBudget, window_blocks
from surefoot.config import SchedulerConfig
from surefoot.core.events import Failed, Finished
from surefoot.core.request import Request
from surefoot.core.step import RowPlan, StepPlan
from surefoot.errors import QueueTimeoutError
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.storage import RowStorage
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

LONG = tuple(range(7, 7 + 40))


def ids(run: Run) -> list[int]:
    """Running rows, longest in first."""
    return list(run.scheduler._roster.running)


def num_known(run: Run) -> int:
    counts = run.scheduler.kv_counts()
    return counts.held + counts.kept


def finish_order(run: Run) -> list[int]:
    return [event.request_id for event in run.events if isinstance(event, Finished)]


def dense_run(total: int, num_windows: int = 3, capacity: int = 64, **config: object) -> Run:
    engine = ScriptedEngine(num_windows, capacity)
    settings = SchedulerConfig(num_windows, **config)  # type: ignore[arg-type]
    return Run(engine, settings, storage=RowStorage(engine, KvBudget(total)))


def test_a_row_waits_until_its_whole_window_fits() -> None:
    run = dense_run(total=8)
    # 20 + 12 tokens are 2 blocks and one to spare; three such rows do not fit in 8.
    for number in (1, 2, 3):
        run.add(request(number, range(20), 12))
    run.tick()
    assert (ids(run), run.scheduler.num_waiting) == ([1, 2], 1)
    run.finish()
    assert [len(run.tokens(number)) for number in (1, 2, 3)] == [12, 12, 12]


def test_nobody_overtakes_a_row_that_waits_for_memory() -> None:
    run = dense_run(total=7)
    run.add(request(1, range(20), 12), request(2, range(40), 24), request(3, (1,), 2))
    run.tick()
    assert ids(run) == [1]
    run.finish()
    assert finish_order(run) == [1, 3, 2]


def test_a_row_that_waits_for_memory_leaves_the_pipeline_alone() -> None:
    run = dense_run(total=5)
    run.add(request(1, range(20), 40), request(2, (1,), 4))
    run.tick(5)
    assert run.scheduler.lookahead is not None
    assert (ids(run), run.scheduler.num_waiting) == ([1], 1)


def test_a_budget_holds_one_whole_window_at_least() -> None:
    with pytest.raises(AssertionError):
        dense_run(total=window_blocks(64) - 1)


def test_kept_blocks_make_way_for_a_window_before_anyone_queues() -> None:
    engine = paged_engine(num_windows=2, capacity=64, num_blocks=8)
    run = paged_run(engine, total=8)
    for number in (1, 2):
        run.add(request(number, range(100 * number, 100 * number + 33), 1)).finish()
    assert num_known(run) == 4
    run.add(request(3, range(300, 333), 31))
    run.tick()
    # A window of 5 leaves 3 blocks, and the row's own prompt takes over two of them.
    assert (ids(run), num_known(run)) == ([3], 3)
    run.add(request(4, (1,), 30))
    run.tick(2)
    assert (ids(run), num_known(run)) == ([3, 4], 0)
    run.finish()


def test_warm_windows_are_cooled_before_blocks_are_evicted() -> None:
    engine = paged_engine(num_windows=2, capacity=64, num_blocks=8)
    run = paged_run(engine, total=14)
    run.add(request(1, range(100, 133), 31), request(2, range(200, 233), 1))
    run.finish()
    assert (engine.released, num_known(run)) == ([], 5)
    run.add(request(3, range(200, 233), 31)).finish()
    assert cached(run, 3) == 32
    assert (engine.released, num_known(run)) == ([0], 6)


def test_a_window_with_more_pages_than_its_next_row_may_take_is_released() -> None:
    engine = paged_engine(num_windows=1, capacity=256)
    run = paged_run(engine)
    run.add(request(1, range(100), 4)).finish().add(request(2, range(100), 4)).finish()
    assert engine.released == []
    run.add(request(3, (1,), 1)).finish()
    assert engine.released == [0]


def test_what_a_row_found_in_its_window_is_counted_when_it_leaves() -> None:
    engine = paged_engine(num_windows=2, capacity=512, num_blocks=2)
    run = paged_run(engine, total=50)
    run.add(request(1, range(400), 4)).finish()
    # It could use as much of the window, but ends after a token.
    run.add(request(2, range(33), 400, end_ids=range(50))).finish()
    assert (cached(run, 2), engine.touched) == (32, [403, 0])
    run.add(request(3, (1,), 500)).finish()
    assert (engine.touched, run.most_resident) == ([0, 500], 32)


def test_the_blocks_of_a_row_set_aside_are_given_up_last() -> None:
    engine = paged_engine(num_windows=2, capacity=64, num_blocks=16, vocab=3)
    config = SchedulerConfig(max_rows=1, preemption=True)
    run = paged_run(engine, total=9, config=config)
    low = request(1, LONG, 20)
    run.add(low)
    run.tick(4)
    run.add(request(2, range(60, 80), 30, priority=1))
    run.tick(2)
    assert ids(run) == [2]
    run.finish()
    assert run.tokens(1) == alone(engine, low)
    assert (0, 32) in engine.loaded


def test_a_row_whose_blocks_were_given_up_reads_its_tokens_again() -> None:
    engine = paged_engine(num_windows=2, capacity=64, num_blocks=16, vocab=3)
    config = SchedulerConfig(max_rows=1, preemption=True)
    run = paged_run(engine, total=5, config=config)
    low, high = request(1, LONG, 20), request(2, range(60, 100), 20, priority=1)
    run.add(low)
    run.tick(4)
    run.add(high).finish()
    assert run.tokens(1) == alone(engine, low)
    assert run.tokens(2) == alone(engine, high)
    assert engine.loaded == []


def test_a_prompt_read_in_two_attempts_is_never_counted_as_known_twice() -> None:
    engine = paged_engine(num_windows=2, capacity=256, num_blocks=16)
    config = SchedulerConfig(max_rows=2, chunk_busy=16, chunk_alone=32, preemption=True)
    run = paged_run(engine, total=40, config=config)
    run.add(request(1, range(97), 1)).finish()
    run.add(request(2, range(200), 4)).tick()
    # 96 were known and 32 are read; then all of them are forgotten while the row waits.
    run.scheduler.preempt(2)
    run.scheduler._storage._prefixes.give_up(16, 0, {2})  # type: ignore[union-attr]
    run.add(request(3, range(200), 4, priority=1)).finish()
    # This time it finds 192 that row 3 has read: of those it never had 64.
    assert num_fed(engine, 2) == 32 + (200 - 192) + 3
    assert [run.finished(number).timings.cache_n for number in (2, 3)] == [96 + 64, 0]


def test_priority_orders_the_queue_and_equals_come_first_served() -> None:
    run = dense_run(total=100, num_windows=1)
    for number, priority in ((1, 0), (2, 0), (3, 5), (4, -1), (5, 5)):
        run.add(request(number, (1,), 2, priority=priority))
    run.finish()
    assert finish_order(run) == [3, 5, 1, 2, 4]


@pytest.mark.parametrize("preemption", [True, False])
def test_a_lower_row_makes_way_only_if_asked_to(preemption: bool) -> None:
    run = dense_run(total=100, num_windows=2, preemption=preemption)
    low = [request(1, (1, 2), 20, priority=-1), request(2, (3, 4), 20)]
    run.add(*low)
    run.tick(4)
    run.add(request(3, (5,), 4, priority=1))
    run.tick(2)
    assert sorted(ids(run)) == ([2, 3] if preemption else [1, 2])
    run.finish()
    for one in low:
        assert run.tokens(one.request_id) == alone(run.engine, one)


def test_as_few_rows_make_way_as_memory_takes_the_lowest_and_youngest_first() -> None:
    run = dense_run(total=9, num_windows=4, preemption=True)
    for number, priority in ((1, 1), (2, 0), (3, 0)):
        run.add(request(number, range(10), 22, priority=priority))
    run.tick(3)
    assert ids(run) == [1, 2, 3]
    run.add(request(4, range(10), 6, priority=2))
    run.tick(2)
    assert ids(run) == [1, 2, 4]
    run.add(request(5, range(60), 4, priority=3))
    run.tick(2)
    assert ids(run) == [4, 5]
    run.finish()


def test_equals_never_make_way() -> None:
    run = dense_run(total=100, num_windows=1, preemption=True)
    run.add(request(1, (1,), 10, priority=3))
    run.tick(2)
    run.add(request(2, (1,), 10, priority=3))
    run.tick(3)
    assert ids(run) == [1]


def test_who_waited_too_long_is_refused_and_who_ran_before_is_not() -> None:
    now = [0.0]
    engine = paged_engine(num_windows=1)
    config = SchedulerConfig(max_rows=1, preemption=True, queue_timeout_s=10)
    run = paged_run(engine, config=config, clock=lambda: now[0])
    run.add(request(1, (1,), 40), request(2, (2,), 5))
    run.tick(2)
    now[0] = 9.0
    run.add(request(3, (3,), 60, priority=1))
    run.tick(2)
    assert ids(run) == [3]
    now[0] = 10.5
    run.tick()
    end = run.end(2)
    assert isinstance(end, Failed)
    assert isinstance(end.error, QueueTimeoutError)
    assert end.error.message == "no place came free within 10 s; try again later"
    assert (end.error.http_status, end.error.code) == (503, "queue_timeout")
    now[0] = 100.0
    run.finish()
    assert [len(run.tokens(number)) for number in (1, 3)] == [40, 60]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.integers(1, 6)),
        st.tuples(st.just("add"), st.integers(0, 10_000)),
        st.tuples(st.just("cancel"), st.integers(0, 12)),
        st.tuples(st.just("preempt"), st.integers(0, 12)),
    ),
    max_size=30,
)


def made_request(request_id: int, salt: int) -> Request:
    """One of a few families of prompts that begin alike, as varied as `salt`."""
    family = [salt % 3] * 3 + [1, 2, 0, 2] * 12
    prompt = family[: 1 + salt % 45] + [salt % 2] * (salt % 4)
    return request(
        request_id,
        prompt,
        1 + salt % 37,
        [GREEDY, SEEDED, PENALIZED][salt % 3],
        end_ids={0} if salt % 5 == 0 else set(),
        speculation=salt % 7 != 0,
        priority=salt % 4,
        cache_salt="me" if salt % 11 == 0 else "",
    )


def some_fault(plan: StepPlan, row: RowPlan) -> str | None:
    """Every fifth joint step fails, and every fourth row at its 50th position for good."""
    if len(plan.rows) > 1 and plan.step_id % 5 == 0:
        return "joint"
    return "for good" if row.row_id % 4 == 0 and row.end > 50 else None


@settings(max_examples=150, deadline=None)
@given(
    operations=OPERATIONS,
    max_rows=st.integers(1, 3),
    total=st.sampled_from([None, 7, 9, 12, 20]),
    num_blocks=st.sampled_from([1, 4, 30]),
    policy=st.sampled_from([None, *DraftPolicy]),
    preemption=st.booleans(),
    faulty=st.booleans(),
)
def test_any_sequence_of_operations_keeps_the_books_and_the_texts(
    operations: list[tuple[str, int]],
    max_rows: int,
    total: int | None,
    num_blocks: int,
    policy: DraftPolicy | None,
    preemption: bool,
    faulty: bool,
) -> None:
    fault = some_fault if faulty else None
    engine = ScriptedEngine(max_rows, 90, vocab=3, num_blocks=num_blocks, fault=fault)
    config = SchedulerConfig(max_rows, 100, 5, 40, preemption=preemption)
    lookup = None
    if policy is not None:
        lookup = PromptLookup.from_config(PromptLookupConfig(policy=policy))
    run = Run(engine, config, lookup, paged_storage(engine, total))
    requests = drive(run, operations, made_request)
    for one, end in whole_replies(run, engine, requests):
        assert 0 <= end.timings.cache_n < len(one.prompt_ids)
    assert len(engine.blocks) <= num_blocks
    assert total is None or run.most_resident <= total
