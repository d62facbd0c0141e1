"""Where replies end, who is told what, cancellation and preemption."""

from __future__ import annotations

import itertools

import pytest

from support.fakes import ScriptedEngine, plan_table
from support.scheduler_runs import GREEDY, SEEDED, LetterText, Run, alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request, SamplingParams
from surefoot.core.timings import Timings
from surefoot.errors import EngineError
from surefoot.scheduling.scheduler import Scheduler

A, B, C = (1, 2, 3), (4, 5, 6, 7), (8, 9)
REPLIES = {A: range(10, 40), B: range(40, 60), C: range(70, 90)}


def engine(num_windows: int = 2, capacity: int = 64) -> ScriptedEngine:
    return ScriptedEngine(num_windows, capacity, vocab=100, replies=REPLIES)


@pytest.mark.parametrize("end_token", range(10, 16))
@pytest.mark.parametrize("lookahead", [True, False])
def test_end_token_is_counted_and_gives_no_text(end_token: int, lookahead: bool) -> None:
    run = Run(engine(), SchedulerConfig(max_rows=2, lookahead=lookahead))
    run.add(request(1, A, 9, end_ids={end_token}, stop="zz")).finish()
    assert run.tokens(1) == tuple(range(10, end_token + 1))
    assert run.text(1) == "klmnop"[: end_token - 10]
    assert run.finished(1) == Finished(
        1,
        FinishReason.STOP,
        "",
        3,
        end_token - 9,
        Timings(prompt_n=3, prompt_ms=0.0, predicted_n=end_token - 9, predicted_ms=0.0),
    )


@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [("k", "", 1), ("kl", "", 2), ("lmn", "k", 4), ("p", "klmno", 6)],
)
def test_a_stop_string_is_cut_off(stop: str, text: str, num_tokens: int) -> None:
    run = Run(engine()).add(request(1, A, 20, stop=stop)).finish()
    assert run.text(1) == text
    assert len(run.tokens(1)) == num_tokens
    assert run.reason(1) is FinishReason.STOP


def test_held_back_text_comes_with_the_end() -> None:
    """ "no" is held as the start of "nobody" when max_tokens ends the row."""
    run = Run(engine()).add(request(1, A, 5, stop="nobody")).finish()
    assert [e.text for e in run.events if isinstance(e, TokensEmitted)] == ["k", "l", "m", "", ""]
    assert (run.finished(1).text, run.reason(1)) == ("no", FinishReason.LENGTH)


def test_a_stop_string_on_the_last_token_is_a_stop() -> None:
    run = Run(engine()).add(request(1, A, 3, stop="m")).finish()
    assert run.reason(1) is FinishReason.STOP


@pytest.mark.parametrize(("capacity", "num_tokens"), [(3, 1), (4, 2), (7, 5), (12, 9)])
def test_the_context_ends_a_row(capacity: int, num_tokens: int) -> None:
    """The last token needs no position of its own; 9 is max_tokens."""
    run = Run(engine(1, capacity)).add(request(1, A, 9)).finish()
    assert run.tokens(1) == tuple(range(10, 10 + num_tokens))
    assert run.reason(1) is FinishReason.LENGTH


def test_timings_run_from_admission_to_first_and_last_token() -> None:
    ticks = itertools.count(step=0.5)
    scheduler = Scheduler(engine(1), SchedulerConfig(max_rows=1), None, lambda: next(ticks))
    scheduler.add(request(1, A, 3))
    events = [event for _ in range(3) for event in scheduler.tick()]
    # The clock is read at admission (0.0), at each commit (0.5, 1.0, 1.5) and at the end.
    assert isinstance(events[-1], Finished)
    assert events[-1].timings == Timings(
        prompt_n=3, prompt_ms=500.0, predicted_n=3, predicted_ms=1000.0
    )


def test_logprobs_stay_parallel_to_the_tokens() -> None:
    params = SamplingParams(temperature=0.0, logprobs=2)
    run = Run(engine()).add(request(1, A, 4, params)).finish()
    entries = [
        (token, entry.logprob)
        for event in run.events
        if isinstance(event, TokensEmitted)
        for token, entry in zip(event.token_ids, event.logprobs or (), strict=True)
    ]
    assert entries == [(10, -10.0), (11, -11.0), (12, -12.0), (13, -13.0)]


class TestCancel:
    def test_a_waiting_row_ends_at_once(self) -> None:
        run = Run(engine(1)).add(request(1, A, 9), request(2, B, 9))
        run.tick()
        run.scheduler.cancel(2)
        assert run.scheduler.num_waiting == 0
        run.tick()
        assert run.finished(2).completion_tokens == 0
        assert run.reason(2) is FinishReason.CANCELLED
        assert run.finish().reason(1) is FinishReason.LENGTH

    def test_before_the_first_tick(self) -> None:
        run = Run(engine()).add(request(1, A, 9))
        run.scheduler.cancel(1)
        assert run.scheduler.has_work
        run.finish()
        assert run.engine.plans == []
        assert run.reason(1) is FinishReason.CANCELLED

    def test_between_prompt_chunks(self) -> None:
        run = Run(engine(), SchedulerConfig(max_rows=2, chunk_alone=2)).add(request(1, B, 9))
        run.tick()
        run.scheduler.cancel(1)
        run.finish()
        assert len(run.engine.plans) == 1
        assert run.finished(1).completion_tokens == 0
        assert run.engine.released == [0]

    def test_with_a_step_in_flight_the_row_ends_after_it(self) -> None:
        """I8: the token of the step in flight is kept, no further step feeds the row."""
        run = Run(engine()).add(request(1, A, 20), request(2, B, 6))
        run.tick(3)
        run.scheduler.cancel(1)
        run.tick()
        assert run.tokens(1) == (10, 11, 12, 13)
        assert run.reason(1) is FinishReason.CANCELLED
        assert [[row.row_id for row in plan.rows] for plan in run.engine.plans[-2:]] == [
            [1, 2],
            [2],
        ]
        run.finish()
        assert run.tokens(2) == tuple(range(40, 46))

    def test_held_back_text_is_not_lost(self) -> None:
        run = Run(engine()).add(request(1, A, 20, stop="mnx"))
        run.tick(3)
        run.scheduler.cancel(1)
        run.finish()
        assert run.text(1) == "klmn"

    def test_unknown_and_ended_rows_are_ignored(self) -> None:
        run = Run(engine()).add(request(1, A, 1)).finish()
        run.scheduler.cancel(1)
        run.scheduler.cancel(99)
        assert not run.scheduler.has_work
        assert run.tick() == []


class TestPreempt:
    @pytest.mark.parametrize("after", range(1, 7))
    @pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
    def test_the_reply_goes_on_as_if_nothing_had_been(
        self, after: int, sampling: SamplingParams
    ) -> None:
        requests = [request(1, (3, 1, 4), 9, sampling), request(2, (2, 7), 9, sampling)]
        run = Run(ScriptedEngine(2, 64)).add(*requests)
        run.tick(after)
        assert run.scheduler.preempt(1)
        run.scheduler.check()
        assert (run.scheduler.num_running, run.scheduler.num_waiting) == (1, 1)
        run.finish()
        for one in requests:
            assert run.tokens(one.request_id) == alone(run.engine, one)

    def test_it_tears_down_the_lookahead_and_reads_everything_again(self) -> None:
        run = Run(engine(1)).add(request(1, A, 6))
        run.tick(3)
        assert run.scheduler.lookahead is not None
        assert run.scheduler.preempt(1)
        assert run.engine.released == [0]
        run.finish()
        assert plan_table(run.engine.plans)[3:] == [
            [(1, 5, "<2", 0)],  # was in flight: read, its token kept
            [(1, 0, (*A, 10, 11, 12, 13), 6)],
            [(1, 7, (14,), 0)],
        ]
        assert run.tokens(1) == tuple(range(10, 16))

    def test_a_preempted_row_goes_before_those_that_wait(self) -> None:
        run = Run(engine(1)).add(request(1, A, 3), request(2, B, 1))
        run.tick()
        assert run.scheduler.preempt(1)
        run.finish()
        assert [e.request_id for e in run.events if isinstance(e, Finished)] == [1, 2]

    def test_rows_that_do_not_run_are_not_preempted(self) -> None:
        run = Run(engine(1)).add(request(1, A, 3), request(2, B, 1))
        run.tick()
        assert not run.scheduler.preempt(2)
        run.scheduler.cancel(1)
        assert not run.scheduler.preempt(1)
        run.finish()
        assert not run.scheduler.preempt(1)

    def test_a_row_that_ends_in_the_torn_down_step_is_not_preempted(self) -> None:
        run = Run(engine(1)).add(request(1, A, 9, end_ids={13}))
        run.tick(3)
        assert not run.scheduler.preempt(1)
        run.finish()
        assert run.tokens(1) == (10, 11, 12, 13)


def test_fail_all_leaves_a_scheduler_as_new() -> None:
    run = Run(engine(2)).add(request(1, A, 9), request(2, B, 9), request(3, C, 9))
    run.tick(3)
    error = EngineError("broken")
    failed = run.scheduler.fail_all(error)
    assert [(e.request_id, e.error) for e in failed] == [(1, error), (2, error), (3, error)]
    assert not run.scheduler.has_work
    run.scheduler.check()
    assert sorted(run.engine.released) == [0, 1]
    run.add(request(4, A, 4)).finish()
    assert run.tokens(4) == (10, 11, 12, 13)


def test_text_objects_are_stepped_in_order() -> None:
    text = LetterText()
    one = Request(1, A, 4, GREEDY, text)
    run = Run(engine()).add(one).finish()
    assert run.text(1) == "klmn"
