"""The scheduler's thread: delivery, cancellation, faults, shutdown. No model, no clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from support.fakes import TIMEOUT_S, ScriptedEngine
from support.scheduler_runs import alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request
from surefoot.errors import ContextLengthError, EngineError, NotReadyError, QueueFullError
from surefoot.runtime.loop import EngineLoop, LoopStats
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage
from surefoot.speculation.config import PromptLookupConfig


class Inbox:
    """Keeps every batch, and lets a test wait for the terminal events."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self._arrived = threading.Condition()

    def put(self, events: Sequence[Event]) -> None:
        with self._arrived:
            self.batches.append(list(events))
            self._arrived.notify_all()

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    @property
    def ends(self) -> dict[int, Finished | Failed]:
        ends = [event for event in self.events if isinstance(event, Finished | Failed)]
        assert len({event.request_id for event in ends}) == len(ends), ends
        return {event.request_id: event for event in ends}

    def wait_for_ends(self, count: int) -> dict[int, Finished | Failed]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.ends) >= count, TIMEOUT_S), self.events
            return self.ends

    def wait_for_tokens(self, count: int) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.tokens()) >= count, TIMEOUT_S)

    def tokens(self, request_id: int = 1) -> tuple[int, ...]:
        return tuple(
            token
            for event in self.events
            if isinstance(event, TokensEmitted) and event.request_id == request_id
            for token in event.token_ids
        )


class Served:
    """A started loop over a scripted engine; ended with the test."""

    def __init__(self, engine: ScriptedEngine, config: SchedulerConfig | None = None) -> None:
        self.engine = engine
        self.scheduler = Scheduler(
            engine,
            config or SchedulerConfig(max_rows=engine.num_windows, max_queue_depth=2),
            PromptLookup.from_config(PromptLookupConfig()),
        )
        self.loop = EngineLoop(self.scheduler)
        self.inbox = Inbox()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(ScriptedEngine(2, 64, vocab=5))
    served.loop.start()
    yield served
    served.engine.finish_all()
    assert served.loop.shutdown(drain=False, timeout=TIMEOUT_S)


@pytest.fixture
def manual() -> Iterator[Served]:
    """The test says when each step is done."""
    served = Served(ScriptedEngine(1, 64, vocab=5, manual=True))
    served.loop.start()
    yield served
    served.engine.finish_all()
    served.loop.shutdown(drain=False, timeout=TIMEOUT_S)


def test_replies_arrive_whole_and_end_once(served: Served) -> None:
    requests = [request(index, (index, 2, 3), 10 + index) for index in range(1, 5)]
    for one in requests:
        served.loop.submit(one, served.inbox)
    served.inbox.wait_for_ends(4)
    for one in requests:
        assert served.inbox.tokens(one.request_id) == alone(served.engine, one)


def test_each_request_tells_its_own_inbox(served: Served) -> None:
    other = Inbox()
    served.loop.submit(request(1, (1, 2), 9), served.inbox)
    served.loop.submit(request(2, (3, 4), 9), other)
    assert set(served.inbox.wait_for_ends(1)) == {1}
    assert set(other.wait_for_ends(1)) == {2}


def test_the_events_of_a_tick_come_in_one_batch() -> None:
    """Both are accepted while the first request's only step runs, so they start together."""
    two = Served(ScriptedEngine(2, 64, vocab=5, manual=True))
    two.loop.start()
    two.loop.submit(request(9, (1, 2), 1), Inbox())
    two.engine.wait_until_read(0)
    for index in (1, 2):
        two.loop.submit(request(index, (index, 2, 3), 4, speculation=False), two.inbox)
    two.engine.finish_all()
    two.inbox.wait_for_ends(2)
    assert [[event.request_id for event in batch] for batch in two.inbox.batches] == [
        [1, 2],
        [1, 2],
        [1, 2],
        [1, 1, 2, 2],
    ]
    assert two.loop.shutdown(drain=True, timeout=TIMEOUT_S)


def test_clients_are_told_of_a_step_while_the_next_one_runs() -> None:
    """Waking them would hold up the step after it; what nothing follows is told at once."""
    engine = ScriptedEngine(1, 64, vocab=5, manual=True)
    one = Served(engine, SchedulerConfig(max_rows=1, max_queue_depth=2, lookahead=False))
    submitted_when_told: list[int] = []

    class Watching(Inbox):
        def put(self, events: Sequence[Event]) -> None:
            submitted_when_told.append(len(engine.plans))
            super().put(events)

    inbox = Watching()
    one.loop.start()
    one.loop.submit(request(1, (1, 2), 4, speculation=False), inbox)
    for step in range(4):
        engine.wait_until_read(step)
        assert len(inbox.tokens()) == step
        engine.finish_step()
    inbox.wait_for_ends(1)
    assert submitted_when_told == [2, 3, 4, 4]
    assert one.loop.shutdown(drain=True, timeout=TIMEOUT_S)


def test_what_was_not_told_yet_comes_before_a_failure() -> None:
    engine = ScriptedEngine(1, 64, vocab=5, manual=True)
    one = Served(engine, SchedulerConfig(max_rows=1, max_queue_depth=2, lookahead=False))
    one.loop.start()
    one.loop.submit(request(1, (1, 2), 4, speculation=False), one.inbox)
    engine.wait_until_read(0)
    engine.dead = RuntimeError("gone")  # the second step cannot be submitted
    engine.finish_step()
    ends = one.inbox.wait_for_ends(1)
    assert isinstance(ends[1], Failed)
    assert len(one.inbox.tokens()) == 1
    assert one.inbox.events[-1] is ends[1]
    one.loop.shutdown(drain=False, timeout=TIMEOUT_S)


def test_nothing_is_accepted_before_start() -> None:
    served = Served(ScriptedEngine())
    with pytest.raises(NotReadyError):
        served.loop.submit(request(1, (1,)), served.inbox)
    assert not served.loop.healthy
    assert served.loop.shutdown(drain=True, timeout=0.0)


def test_the_queue_is_bounded_at_once(manual: Served) -> None:
    """One row and a queue of two: the fourth is refused while all are open."""
    for index in (1, 2, 3):
        manual.loop.submit(request(index, (1, 2), 2), manual.inbox)
    with pytest.raises(QueueFullError):
        manual.loop.submit(request(4, (1, 2), 2), manual.inbox)
    manual.engine.finish_all()
    manual.inbox.wait_for_ends(3)
    manual.loop.submit(request(4, (1, 2), 2), manual.inbox)
    manual.inbox.wait_for_ends(4)


def test_cancel_while_a_step_runs(manual: Served) -> None:
    manual.loop.submit(request(1, (1, 2), 50), manual.inbox)
    manual.engine.wait_until_read(0)
    manual.loop.cancel(1)
    manual.engine.finish_all()
    end = manual.inbox.wait_for_ends(1)[1]
    assert isinstance(end, Finished)
    assert (end.reason, end.completion_tokens) == (FinishReason.CANCELLED, 1)


def test_cancelling_the_unknown_is_harmless(served: Served) -> None:
    served.loop.cancel(77)
    served.loop.submit(request(1, (1, 2), 3), served.inbox)
    served.inbox.wait_for_ends(1)
    served.loop.cancel(1)
    served.loop.submit(request(2, (1, 2), 3), served.inbox)
    assert isinstance(served.inbox.wait_for_ends(2)[2], Finished)


def test_a_prompt_past_the_context_fails_its_request_alone(served: Served) -> None:
    served.loop.submit(request(1, range(65), 3), served.inbox)
    served.loop.submit(request(2, (1, 2), 3), served.inbox)
    ends = served.inbox.wait_for_ends(2)
    assert isinstance(ends[1], Failed)
    assert isinstance(ends[2], Finished)


class BrokenText:
    """A bug of ours, in the middle of a tick."""

    stopped = False

    def push(self, token_id: int) -> str:
        raise ZeroDivisionError

    def finish(self) -> str:
        return ""


def broken_request(request_id: int) -> Request:
    broken = request(request_id, (1, 2), 5)
    object.__setattr__(broken, "text", BrokenText())
    return broken


@contextmanager
def at_once(*requests: Request) -> Iterator[Served]:
    """A loop whose first turn finds all of these."""
    served = Served(ScriptedEngine(2, 64, vocab=5))
    served.loop._accepting = True
    for each in requests:
        served.loop.submit(each, served.inbox)
    served.loop.start()
    yield served
    assert served.loop.shutdown(drain=False, timeout=TIMEOUT_S)


def test_a_bug_in_a_tick_fails_the_live_requests_and_the_loop_lives_on(
    manual: Served, caplog: pytest.LogCaptureFixture
) -> None:
    manual.loop.submit(broken_request(1), manual.inbox)
    manual.loop.submit(request(2, (1, 2), 5), manual.inbox)
    manual.engine.finish_all()
    ends = manual.inbox.wait_for_ends(1)
    assert isinstance(ends[1], Failed)
    assert isinstance(ends[1].error, EngineError)
    assert "ZeroDivisionError" in caplog.text
    manual.loop.submit(request(3, (1, 2), 5), manual.inbox)
    third = manual.inbox.wait_for_ends(3)[3]
    assert isinstance(third, Finished)
    assert manual.loop.healthy


def test_a_request_refused_in_the_turn_of_a_bug_is_told_so() -> None:
    """Both are accepted before the loop's first turn."""
    with at_once(request(1, range(65), 3), broken_request(2)) as served:
        ends = served.inbox.wait_for_ends(2)
        assert isinstance(ends[1], Failed)
        assert isinstance(ends[1].error, ContextLengthError)
        assert isinstance(ends[2], Failed)


@pytest.mark.parametrize("where", ["add", "admit"])
def test_what_the_scheduler_never_had_is_failed_with_the_rest(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug while a request is queued, or while it gets its window: nobody waits for ever, nor do
    those that came later in the same turn."""
    broken: list[object] = []

    def fail_once(self: object, given: Any, *rest: object) -> None:
        if not broken:
            broken.append(given)
            raise ZeroDivisionError
        whole(self, given, *rest)

    owner = Scheduler if where == "add" else RowStorage
    whole = getattr(owner, where)
    monkeypatch.setattr(owner, where, fail_once)
    with at_once(request(1, (1, 2), 3), request(2, (1, 2), 3)) as served:
        ends = served.inbox.wait_for_ends(2)
        assert [type(ends[number]) for number in (1, 2)] == [Failed, Failed]
        served.loop.submit(request(3, (1, 2), 3), served.inbox)
        assert isinstance(served.inbox.wait_for_ends(3)[3], Finished)
        assert served.loop.healthy


@pytest.mark.parametrize("where", ["dead", "dead_on_result"])
def test_a_dead_engine_fails_everybody_and_makes_the_loop_unhealthy(
    manual: Served, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    manual.loop.submit(request(1, (1, 2), 5), manual.inbox)
    manual.loop.submit(request(2, (1, 2), 5), manual.inbox)
    manual.engine.wait_until_read(0)
    setattr(manual.engine, where, RuntimeError("no thread"))
    manual.engine.finish_all()
    ends = manual.inbox.wait_for_ends(2)
    assert [type(end) for end in ends.values()] == [Failed, Failed]
    assert not manual.loop.healthy
    with pytest.raises(NotReadyError):
        manual.loop.submit(request(3, (1, 2), 5), manual.inbox)
    assert "no thread" in caplog.text


class TestShutdown:
    def test_drain_lets_open_requests_finish(self, manual: Served) -> None:
        for index in (1, 2):
            manual.loop.submit(request(index, (1, 2), 6), manual.inbox)
        manual.engine.wait_until_read(0)
        manual.engine.finish_all()
        assert manual.loop.shutdown(drain=True, timeout=TIMEOUT_S)
        ends = manual.inbox.ends
        assert [ends[index].reason for index in (1, 2)] == [FinishReason.LENGTH] * 2  # type: ignore[union-attr]
        with pytest.raises(NotReadyError):
            manual.loop.submit(request(3, (1, 2)), manual.inbox)

    def test_without_drain_they_are_cancelled(self, manual: Served) -> None:
        for index in (1, 2):
            manual.loop.submit(request(index, (1, 2), 60), manual.inbox)
        manual.engine.wait_until_read(0)
        done: list[bool] = []
        thread = threading.Thread(
            target=lambda: done.append(manual.loop.shutdown(drain=False, timeout=TIMEOUT_S))
        )
        thread.start()
        # The step ends only once the shutdown has taken hold.
        while True:
            try:
                manual.loop.submit(request(99, (1,)), Inbox())
            except NotReadyError:
                break
            except QueueFullError:
                continue
            manual.loop.cancel(99)
        manual.engine.finish_all()
        thread.join(TIMEOUT_S)
        assert done == [True]
        assert {end.reason for end in manual.inbox.ends.values()} == {FinishReason.CANCELLED}  # type: ignore[union-attr]

    def test_a_hung_engine_does_not_hold_the_clients(self, manual: Served) -> None:
        manual.loop.submit(request(1, (1, 2), 6), manual.inbox)
        manual.engine.wait_until_read(0)
        assert not manual.loop.shutdown(drain=True, timeout=0.0)
        end = manual.inbox.ends[1]
        assert isinstance(end, Failed)
        assert isinstance(end.error, NotReadyError)
        manual.engine.finish_all()
        assert manual.loop.shutdown(drain=False, timeout=TIMEOUT_S)
        assert len(manual.inbox.ends) == 1  # the late reply of the thread is dropped


def test_stats_count_what_ended_replies_report(served: Served) -> None:
    assert served.loop.stats() == LoopStats()
    prompt = (1, 2, 3, 1, 2, 3, 1, 2)
    served.engine.replies = {prompt: (3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2)}
    served.loop.submit(request(1, prompt, 12), served.inbox)
    served.loop.submit(request(2, (4, 4), 3, end_ids=range(5)), served.inbox)
    served.loop.submit(request(3, range(65), 3), served.inbox)
    ends = served.inbox.wait_for_ends(3)
    assert served.loop.shutdown(drain=True, timeout=TIMEOUT_S)
    first = ends[1]
    assert isinstance(first, Finished)
    assert first.timings.draft_rounds > 0
    assert served.loop.stats() == LoopStats(
        running=0,
        waiting=0,
        requests_stop=1,
        requests_length=1,
        requests_failed=1,
        prompt_tokens=10,
        completion_tokens=13,
        draft_proposed=first.timings.draft_n,
        draft_accepted=first.timings.draft_n_accepted,
        draft_rounds=first.timings.draft_rounds,
    )


def test_running_and_waiting_are_of_now(manual: Served) -> None:
    for index in (1, 2, 3):
        manual.loop.submit(request(index, (1, 2), 6, speculation=False), manual.inbox)
    manual.engine.finish_step()
    manual.engine.wait_until_read(1)
    stats = manual.loop.stats()
    assert (stats.running, stats.waiting) == (1, 2)


def test_idle_work_is_done_between_requests_and_ends() -> None:
    done = threading.Event()
    turns: list[int] = []

    def work() -> Iterator[None]:
        for turn in range(3):
            turns.append(turn)
            yield
        done.set()

    engine = ScriptedEngine(2, 64, vocab=5)
    scheduler = Scheduler(engine, SchedulerConfig(max_rows=2))
    loop, inbox = EngineLoop(scheduler, work()), Inbox()
    loop.start()
    assert done.wait(TIMEOUT_S)
    loop.submit(request(1, (1, 2), 4), inbox)
    inbox.wait_for_ends(1)
    assert loop.shutdown(drain=True, timeout=TIMEOUT_S)
    assert turns == [0, 1, 2]


def test_a_request_interrupts_idle_work() -> None:
    submitted = threading.Event()
    rest: list[int] = []
    inbox = Inbox()

    def work() -> Iterator[None]:
        assert submitted.wait(TIMEOUT_S)
        yield
        rest.append(len(inbox.ends))
        yield

    scheduler = Scheduler(ScriptedEngine(2, 64, vocab=5), SchedulerConfig(max_rows=2))
    loop = EngineLoop(scheduler, work())
    loop.start()
    loop.submit(request(1, (1, 2), 4), inbox)
    submitted.set()
    inbox.wait_for_ends(1)
    assert loop.shutdown(drain=True, timeout=TIMEOUT_S)
    # Whatever of it ran came after the reply.
    assert rest in ([], [1])


def test_idle_work_that_raises_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    raised = threading.Event()

    def work() -> Iterator[None]:
        raised.set()
        raise ValueError("no")
        yield

    scheduler = Scheduler(ScriptedEngine(2, 64, vocab=5), SchedulerConfig(max_rows=2))
    loop, inbox = EngineLoop(scheduler, work()), Inbox()
    loop.start()
    assert raised.wait(TIMEOUT_S)
    loop.submit(request(1, (1, 2), 4), inbox)
    assert inbox.wait_for_ends(1).keys() == {1}
    assert loop.shutdown(drain=True, timeout=TIMEOUT_S)
    assert "idle work failed" in caplog.text
