"""What exactly each tick asks of the engine, as tables of numbers.

A row reads `(row id, start, feed, sample_from)`; a feed `"<n"` is the token step n samples.
"""

from __future__ import annotations

import pytest

from support.fakes import ScriptedEngine, plan_table
from support.scheduler_runs import Run, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import TokensEmitted
from surefoot.errors import ContextLengthError, QueueFullError

A, B, C = (1, 2, 3), (4, 5, 6, 7), (8, 9)
REPLIES = {A: range(10, 30), B: range(40, 60), C: range(70, 90)}


def engine(num_windows: int = 2) -> ScriptedEngine:
    return ScriptedEngine(num_windows, capacity=64, vocab=100, replies=REPLIES)


def test_one_row_starts_synchronous_then_pipelines_and_never_primes_past_its_end() -> None:
    run = Run(engine()).add(request(1, A, 5)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2)],  # prefill samples token 10
        [(1, 3, (10,), 0)],  # the first decode step is synchronous
        [(1, 4, (11,), 0)],  # primed after it, its feed is known
        [(1, 5, "<2", 0)],  # submitted before step 2 is read
        [(1, 6, "<3", 0)],  # the fifth token; nothing follows it
    ]
    assert run.tokens(1) == (10, 11, 12, 13, 14)
    assert run.engine.log[-1] == "release 0"


def test_each_tick_of_one_row_emits_one_token() -> None:
    run = Run(engine()).add(request(1, A, 5))
    emitted = [[e.token_ids for e in run.tick() if isinstance(e, TokensEmitted)] for _ in range(5)]
    assert emitted == [[(10,)], [(11,)], [(12,)], [(13,)], [(14,)]]
    assert not run.scheduler.has_work


def test_without_lookahead_every_step_feeds_a_known_token() -> None:
    run = Run(engine(), SchedulerConfig(max_rows=2, lookahead=False)).add(request(1, A, 4))
    run.finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2)],
        [(1, 3, (10,), 0)],
        [(1, 4, (11,), 0)],
        [(1, 5, (12,), 0)],
    ]


def test_a_reply_of_one_token_is_its_prefill_alone() -> None:
    run = Run(engine()).add(request(1, A, 1)).finish()
    assert plan_table(run.engine.plans) == [[(1, 0, A, 2)]]
    assert run.tokens(1) == (10,)


def test_a_prompt_of_one_token() -> None:
    run = Run(ScriptedEngine(1, 64, replies={(5,): (6, 7, 8)})).add(request(1, (5,), 3)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, (5,), 0)],
        [(1, 1, (6,), 0)],
        [(1, 2, (7,), 0)],
    ]
    assert run.tokens(1) == (6, 7, 8)


def test_chunks_are_short_beside_a_decoding_row_and_never_primed() -> None:
    config = SchedulerConfig(max_rows=2, chunk_busy=3, chunk_alone=4)
    run = Run(engine(), config).add(request(1, A, 9))
    run.tick(2)  # prefill, one synchronous step, and a prime
    run.add(request(2, B, 3)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2)],
        [(1, 3, (10,), 0)],
        [(1, 4, (11,), 0)],  # primed: read without a prime once row 2 waits
        [(1, 5, (12,), 0), (2, 0, (4, 5, 6), 3)],
        [(1, 6, (13,), 0), (2, 3, (7,), 0)],  # the last chunk samples
        [(1, 7, (14,), 0), (2, 4, (40,), 0)],  # decode starts synchronous after prefill
        [(1, 8, (15,), 0), (2, 5, (41,), 0)],
        [(1, 9, "<6", 0)],  # row 2's third token is known to be its last
        [(1, 10, "<7", 0)],
    ]
    assert run.tokens(1) == tuple(range(10, 19))
    assert run.tokens(2) == (40, 41, 42)


def test_one_budget_for_all_prompts_oldest_first() -> None:
    config = SchedulerConfig(max_rows=3, chunk_busy=2, chunk_alone=5)
    run = Run(ScriptedEngine(3, 64, replies=REPLIES), config)
    run.add(request(1, A, 2), request(2, B, 2), request(3, C, 2)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2), (2, 0, (4, 5), 2)],  # 5 prompt tokens; row 3 waits its turn
        [(1, 3, (10,), 0), (2, 2, (6, 7), 1)],  # row 1 decodes: 2 prompt tokens
        [(2, 4, (40,), 0), (3, 0, C, 1)],
        [(3, 2, (70,), 0)],
    ]


def test_a_prompt_alone_is_read_in_large_chunks() -> None:
    config = SchedulerConfig(max_rows=1, chunk_busy=1, chunk_alone=4)
    prompt = tuple(range(1, 11))
    run = Run(ScriptedEngine(1, 64), config).add(request(1, prompt, 1)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, (1, 2, 3, 4), 4)],
        [(1, 4, (5, 6, 7, 8), 4)],
        [(1, 8, (9, 10), 1)],
    ]


def test_waiting_without_a_free_row_leaves_the_pipeline_up() -> None:
    run = Run(engine(1)).add(request(1, A, 5), request(2, C, 2)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2)],
        [(1, 3, (10,), 0)],
        [(1, 4, (11,), 0)],
        [(1, 5, "<2", 0)],
        [(1, 6, "<3", 0)],
        [(2, 0, C, 1)],
        [(2, 2, (70,), 0)],
    ]
    assert run.engine.log[5:7] == ["release 0", "step 5"]


def test_surprise_end_is_unwound_and_costs_the_other_row_nothing() -> None:
    """I6: row 1 ends at step 2 while step 3 is in flight; row 2 keeps every token of step 3."""
    run = Run(engine()).add(request(1, A, 9, end_ids={12}), request(2, B, 6))
    run.tick(3)
    assert run.reason(1) == "stop"
    assert run.engine.released == []  # step 3 still names window 0
    run.tick()
    assert run.engine.released == [0]
    run.finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2), (2, 0, B, 3)],
        [(1, 3, (10,), 0), (2, 4, (40,), 0)],
        [(1, 4, (11,), 0), (2, 5, (41,), 0)],
        [(1, 5, "<2", 0), (2, 6, "<2", 0)],  # row 1's part is discarded
        [(2, 7, "<3", 0)],
        [(2, 8, "<4", 0)],
    ]
    assert run.tokens(1) == (10, 11, 12)
    assert run.tokens(2) == (40, 41, 42, 43, 44, 45)


def test_last_row_ends_by_surprise_and_a_waiting_one_takes_over() -> None:
    run = Run(engine(1)).add(request(1, A, 9, end_ids={12}), request(2, C, 2)).finish()
    assert run.tokens(1) == (10, 11, 12)
    assert run.tokens(2) == (70, 71)
    assert run.engine.log == [
        "step 0", "step 1", "step 2", "step 3", "release 0", "step 4", "step 5", "release 0",
    ]  # fmt: skip


def test_admission_reads_a_stored_lookahead_first_and_loses_no_token() -> None:
    run = Run(engine()).add(request(1, A, 8))
    run.tick(3)
    assert run.scheduler.lookahead is not None
    run.add(request(2, C, 2))
    run.tick()  # the teardown
    assert run.scheduler.lookahead is None
    assert run.scheduler.num_running == 1
    run.finish()
    assert run.tokens(1) == tuple(range(10, 18))
    assert plan_table(run.engine.plans)[3:6] == [
        [(1, 5, "<2", 0)],
        [(1, 6, (13,), 0), (2, 0, C, 1)],
        [(1, 7, (14,), 0), (2, 2, (70,), 0)],
    ]


def test_low_windows_are_reused() -> None:
    run = Run(engine(3)).add(request(1, A, 9), request(2, B, 1))
    run.tick()
    run.add(request(3, C, 9)).finish()
    assert {row.row_id: row.window for plan in run.engine.plans for row in plan.rows} == {
        1: 0, 2: 1, 3: 1,
    }  # fmt: skip


def test_the_queue_holds_what_the_configuration_says() -> None:
    run = Run(engine(), SchedulerConfig(max_rows=2, max_queue_depth=1))
    run.add(request(1, A), request(2, B), request(3, C))
    with pytest.raises(QueueFullError):
        run.add(request(4, A))
    run.tick()
    assert (run.scheduler.num_running, run.scheduler.num_waiting) == (2, 1)
    with pytest.raises(QueueFullError):
        run.add(request(4, A))
    run.finish()
    run.add(request(4, A)).finish()
    assert [run.reason(i) for i in (1, 2, 3, 4)] == ["length"] * 4


def test_a_prompt_longer_than_a_window_is_refused_with_both_numbers() -> None:
    run = Run(ScriptedEngine(1, capacity=4))
    with pytest.raises(ContextLengthError, match="5 tokens, the context 4"):
        run.add(request(1, (1, 2, 3, 4, 5)))
    run.add(request(2, (1, 2, 3, 4), 9)).finish()
    assert len(run.tokens(2)) == 1
    assert run.reason(2) == "length"
