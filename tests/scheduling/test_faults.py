"""Failing forwards (I7): who is failed, who goes on, and with which tokens."""

from __future__ import annotations

import pytest

from support.fakes import Fault, ScriptedEngine, plan_table
from support.scheduler_runs import Run, alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Failed
from surefoot.core.step import FromStep, RowPlan, StepPlan
from surefoot.errors import EngineError
from surefoot.scheduling.forwards import EngineGoneError

A, B = (1, 2, 3), (4, 5, 6, 7)
REPLIES = {A: range(10, 40), B: range(40, 60)}


def engine(num_windows: int = 2) -> ScriptedEngine:
    return ScriptedEngine(num_windows, 64, vocab=100, replies=REPLIES)


def fail_steps(*step_ids: int, row_id: int | None = None) -> Fault:
    def fault(plan: StepPlan, row: RowPlan) -> str | None:
        hit = plan.step_id in step_ids and row_id in (None, row.row_id)
        return f"step {plan.step_id} failed" if hit else None

    return fault


def test_a_row_that_fails_alone_is_failed_with_the_engines_words() -> None:
    run = Run(engine())
    run.engine.fault = fail_steps(1)
    run.add(request(1, A, 5)).finish()
    end = run.end(1)
    assert isinstance(end, Failed)
    assert isinstance(end.error, EngineError)
    assert end.error.message == "step 1 failed"
    assert run.tokens(1) == (10,)
    assert run.engine.released == [0]


def test_a_failed_joint_forward_is_retried_row_by_row() -> None:
    run = Run(engine())
    run.engine.fault = fail_steps(1)
    run.add(request(1, A, 3), request(2, B, 3)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2), (2, 0, B, 3)],
        [(1, 3, (10,), 0), (2, 4, (40,), 0)],
        [(1, 3, (10,), 0)],
        [(2, 4, (40,), 0)],
        [(1, 4, (11,), 0), (2, 5, (41,), 0)],
    ]
    assert (run.tokens(1), run.tokens(2)) == ((10, 11, 12), (40, 41, 42))


@pytest.mark.parametrize("victim", [1, 2])
@pytest.mark.parametrize("start", [0, 4, 5, 6, 7])
def test_a_row_that_always_fails_ends_and_leaves_the_other_unchanged(
    victim: int, start: int
) -> None:
    """`start` is where the victim's forward fails: in prefill, synchronous, or in a lookahead."""

    def fault(plan: StepPlan, row: RowPlan) -> str | None:
        return "not finite" if row.row_id == victim and row.end > start else None

    run = Run(engine())
    run.engine.fault = fault
    requests = {1: request(1, A, 9), 2: request(2, B, 9)}
    run.add(*requests.values()).finish()
    other = 3 - victim
    assert isinstance(run.end(victim), Failed)
    expected = alone(run.engine, requests[victim])
    kept = run.tokens(victim)
    assert kept == expected[: len(kept)]
    assert len(kept) == max(0, start - len(requests[victim].prompt_ids) + 1)
    assert run.tokens(other) == alone(run.engine, requests[other])
    assert sorted(run.engine.released) == [0, 1]


def test_a_failed_lookahead_read_is_unwound_and_decoded_synchronously() -> None:
    """Step 3 is primed and fails; step 4, fed from it, fails with it."""
    run = Run(engine())
    run.engine.fault = fail_steps(3)
    run.add(request(1, A, 7)).finish()
    assert plan_table(run.engine.plans) == [
        [(1, 0, A, 2)],
        [(1, 3, (10,), 0)],
        [(1, 4, (11,), 0)],
        [(1, 5, "<2", 0)],  # fails
        [(1, 6, "<3", 0)],  # primed before step 3 is read: discarded
        [(1, 5, (12,), 0)],  # the tick's synchronous decode
        [(1, 6, (13,), 0)],  # synchronous tick, then primes again
        [(1, 7, (14,), 0)],
        [(1, 8, "<7", 0)],
    ]
    assert run.tokens(1) == tuple(range(10, 17))


def test_one_row_of_a_lookahead_fails_and_the_others_keep_both_steps() -> None:
    run = Run(engine())
    run.engine.fault = fail_steps(3, row_id=1)
    run.add(request(1, A, 8), request(2, B, 8)).finish()
    assert plan_table(run.engine.plans)[3:7] == [
        [(1, 5, "<2", 0), (2, 6, "<2", 0)],  # row 1 fails
        [(1, 6, "<3", 0), (2, 7, "<3", 0)],  # row 2's part of it is kept
        [(1, 5, (12,), 0)],
        [(1, 6, (13,), 0), (2, 8, (44,), 0)],
    ]
    assert run.tokens(1) == tuple(range(10, 18))
    assert run.tokens(2) == tuple(range(40, 48))


def test_a_lookahead_that_fails_again_alone_fails_the_row() -> None:
    run = Run(engine())
    run.engine.fault = fail_steps(3, 4, 5)
    run.add(request(1, A, 7)).finish()
    assert isinstance(run.end(1), Failed)
    assert run.tokens(1) == (10, 11, 12)


def test_a_primed_step_that_fails_jointly_costs_nobody_a_token() -> None:
    """Whatever single joint step fails, both replies are whole."""
    for step_id in range(12):
        run = Run(engine())
        run.engine.fault = lambda plan, row, bad=step_id: (
            "joint failure" if plan.step_id == bad and len(plan.rows) > 1 else None
        )
        run.add(request(1, A, 8), request(2, B, 8)).finish()
        assert run.tokens(1) == tuple(range(10, 18)), step_id
        assert run.tokens(2) == tuple(range(40, 48)), step_id


def test_an_answer_of_the_wrong_length_is_the_rows_error() -> None:
    run = Run(engine())
    run.engine.wrong_length_for = {1}
    run.add(request(1, A, 5), request(2, B, 3)).finish()
    end = run.end(1)
    assert isinstance(end, Failed)
    assert end.error.message == "the engine returned 2 tokens where 1 were asked for"
    assert run.tokens(2) == (40, 41, 42)


def test_a_cancelled_row_whose_step_fails_ends_cancelled_after_the_retry() -> None:
    run = Run(engine())
    run.engine.fault = fail_steps(3)
    run.add(request(1, A, 9))
    run.tick(3)
    run.scheduler.cancel(1)
    run.finish()
    assert run.reason(1) == "cancelled"
    assert run.tokens(1) == (10, 11, 12, 13)


def test_every_lookahead_plan_feeds_from_the_step_before_it() -> None:
    run = Run(engine(), SchedulerConfig(max_rows=2))
    run.engine.fault = fail_steps(4, 9)
    run.add(request(1, A, 14), request(2, B, 12)).finish()
    fed = [
        (plan.step_id, row.feed.step_id)
        for plan in run.engine.plans
        for row in plan.rows
        if isinstance(row.feed, FromStep)
    ]
    assert fed
    assert all(step_id == source + 1 for step_id, source in fed)


@pytest.mark.parametrize("where", ["dead", "dead_on_result"])
def test_an_engine_that_raises_is_gone(where: str) -> None:
    run = Run(engine()).add(request(1, A, 9))
    run.tick(3)
    setattr(run.engine, where, RuntimeError("executor thread ended"))
    with pytest.raises(EngineGoneError, match="executor thread ended"):
        run.tick(2)
