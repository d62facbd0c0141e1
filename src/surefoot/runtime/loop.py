"""The scheduler's thread: owns the `Scheduler`, waits when idle, hands every event to its inbox.

It knows nothing of asyncio, HTTP or text. Each accepted request ends with exactly one `Finished`
or `Failed`, whatever breaks: a bug in a tick fails the live requests and the loop lives on; an
engine that is gone makes the loop unhealthy, and nothing more is accepted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request
from surefoot.errors import EngineError, NotReadyError, QueueFullError, SurefootError
from surefoot.scheduling.forwards import EngineGoneError
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import KvCounts

log = logging.getLogger(__name__)


class Inbox(Protocol):
    """Where a request's events go. Compared by identity: requests may share one."""

    def put(self, events: Sequence[Event]) -> None:
        """The events of one tick for this inbox, in order. Called on the scheduler's thread, or
        on the thread of `shutdown`; must not block and must not raise."""
        ...


@dataclass(frozen=True, slots=True)
class LoopStats:
    """Counters since start; token and draft counts are those of ended replies (`Finished`), so
    they equal the summed usage; `draft_paused` and `steps_gained` (see `LookupCounts`) are of all
    steps. `running`, `waiting` and `kv` are of now."""

    running: int = 0
    waiting: int = 0
    requests_stop: int = 0
    requests_length: int = 0
    requests_cancelled: int = 0
    requests_failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    draft_proposed: int = 0
    draft_accepted: int = 0
    draft_rounds: int = 0
    draft_paused: int = 0
    steps_gained: float = 0.0
    kv: KvCounts = field(default_factory=KvCounts)

    def after(self, event: Event) -> LoopStats:
        """These counters with one more event counted."""
        if isinstance(event, TokensEmitted):
            return self
        if isinstance(event, Failed):
            return replace(self, requests_failed=self.requests_failed + 1)
        timings = event.timings
        return replace(
            self,
            requests_stop=self.requests_stop + (event.reason is FinishReason.STOP),
            requests_length=self.requests_length + (event.reason is FinishReason.LENGTH),
            requests_cancelled=self.requests_cancelled + (event.reason is FinishReason.CANCELLED),
            prompt_tokens=self.prompt_tokens + event.prompt_tokens,
            completion_tokens=self.completion_tokens + event.completion_tokens,
            draft_proposed=self.draft_proposed + timings.draft_n,
            draft_accepted=self.draft_accepted + timings.draft_n_accepted,
            draft_rounds=self.draft_rounds + timings.draft_rounds,
        )


class EngineLoop:
    """Runs the scheduler on a thread of its own. All methods are safe from any thread.

    `idle_work` is advanced, one item at a time, while no request is there; it must be quick
    between items. One that raises is logged and dropped.
    """

    def __init__(self, scheduler: Scheduler, idle_work: Iterator[None] | None = None) -> None:
        self._scheduler = scheduler
        self._idle_work = idle_work
        self._changed = threading.Condition()
        # Guarded by `_changed`:
        self._submitted: list[Request] = []
        self._cancelled: list[int] = []
        self._inboxes: dict[int, Inbox] = {}
        self._stats = LoopStats()
        self._accepting = False
        self._stopping = False
        self._healthy = False
        # The thread's own: what happened and was not told yet.
        self._untold: list[Event] = []
        self._thread = threading.Thread(target=self._run, name="surefoot-scheduler", daemon=True)

    def start(self) -> None:
        """Begin to accept and run requests. Once only."""
        with self._changed:
            self._accepting = self._healthy = True
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """The thread runs and its engine answers."""
        return self._healthy

    def stats(self) -> LoopStats:
        """A snapshot that never changes."""
        return self._stats

    def submit(self, request: Request, inbox: Inbox) -> None:
        """Accept a request: from here on `inbox` gets its events, ending with exactly one
        `Finished` or `Failed`. Raises `QueueFullError`, or `NotReadyError` before `start`, after
        `shutdown` and when the engine is gone. `request_id` must be new."""
        with self._changed:
            if not self._accepting:
                raise NotReadyError("the server is not accepting requests")
            if len(self._inboxes) >= self._scheduler.max_open:
                limit = self._scheduler.max_open
                raise QueueFullError(
                    f"{len(self._inboxes)} requests run or wait; the limit is {limit};"
                    " try again later"
                )
            assert request.request_id not in self._inboxes, request.request_id
            self._inboxes[request.request_id] = inbox
            self._submitted.append(request)
            self._changed.notify_all()

    def cancel(self, request_id: int) -> None:
        """Ask for a request's end; its inbox still gets the terminal event. A request that has
        ended or was never accepted is ignored."""
        with self._changed:
            if request_id in self._inboxes:
                self._cancelled.append(request_id)
                self._changed.notify_all()

    def shutdown(self, drain: bool, timeout: float) -> bool:
        """Stop accepting and end the thread: `drain` lets open requests finish, otherwise they
        are cancelled. After `timeout` seconds what is still open is failed with `NotReadyError`
        and False is returned (the thread is stuck in the engine, or was still draining)."""
        with self._changed:
            self._accepting = False
            self._stopping = True
            if not drain:
                self._cancelled.extend(self._inboxes)
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        ended = not self._thread.is_alive()
        with self._changed:
            self._healthy = False
            open_ids = list(self._inboxes)
            self._cancelled.extend(open_ids)
            self._changed.notify_all()
        self._deliver(_failures(open_ids, NotReadyError("the server is shutting down")))
        return ended

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                events = self._turn()
            except EngineGoneError as error:
                self._give_up(error)
                return
            except Exception:
                log.exception("a scheduler tick failed; its live requests are failed")
                self._tell()
                try:
                    events = self._fail_open()
                except Exception as error:
                    self._give_up(error)
                    return
            if self._untold:  # no step was submitted after all
                self._tell()
            self._untold = events
            # Clients are woken while the engine works: they would take the time from a step that
            # is about to be submitted.
            if not self._scheduler.steps_next:
                self._tell()

    def _tell(self) -> None:
        events, self._untold = self._untold, []
        self._deliver(events)

    def _wait_for_work(self) -> bool:
        """Block until there is something to do. False: time to end."""
        with self._changed:
            while not (self._submitted or self._cancelled or self._scheduler.has_work):
                if self._stopping:
                    return False
                if self._idle_work is not None:
                    return True
                self._changed.wait()
            return True

    def _turn(self) -> list[Event]:
        """Pass the commands on and tick once."""
        with self._changed:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        if not (submitted or cancelled or self._scheduler.has_work):
            self._work_idly()
            return []
        for request in submitted:
            try:
                self._scheduler.add(request)
            except SurefootError as error:
                self._untold.append(Failed(request.request_id, error))
        for request_id in cancelled:
            self._scheduler.cancel(request_id)
        events = self._scheduler.tick(self._tell)
        if not self._scheduler.has_work:
            self._scheduler.check()
        return events

    def _fail_open(self) -> list[Event]:
        """The events that end every request which the scheduler had, or lost before it had it."""
        error = EngineError("the scheduler failed")
        events = self._scheduler.fail_all(error)
        told = {event.request_id for event in events if not isinstance(event, TokensEmitted)}
        with self._changed:
            told.update(request.request_id for request in self._submitted)
            lost = [request_id for request_id in self._inboxes if request_id not in told]
        return events + _failures(lost, error)

    def _work_idly(self) -> None:
        assert self._idle_work is not None, "woken without work"
        try:
            next(self._idle_work)
        except StopIteration:
            self._idle_work = None
        except EngineGoneError:
            raise
        except Exception:
            log.exception("idle work failed and is dropped")
            self._idle_work = None

    def _give_up(self, error: Exception) -> None:
        log.error("the engine is gone: %s", error)
        self._tell()
        with self._changed:
            self._accepting = self._healthy = False
            open_ids = list(self._inboxes)
        self._deliver(_failures(open_ids, EngineError(f"the engine is gone: {error}")))

    def _deliver(self, events: Sequence[Event]) -> None:
        """One `put` per inbox. An event of a request that already ended is dropped."""
        batches: dict[int, tuple[Inbox, list[Event]]] = {}
        with self._changed:
            stats = self._stats
            for event in events:
                inbox = self._inboxes.get(event.request_id)
                if inbox is None:
                    continue
                batches.setdefault(id(inbox), (inbox, []))[1].append(event)
                if isinstance(event, (Finished, Failed)):
                    del self._inboxes[event.request_id]
                    stats = stats.after(event)
            self._stats = replace(
                stats,
                running=self._scheduler.num_running,
                waiting=self._scheduler.num_waiting,
                draft_paused=self._scheduler.lookup_counts.paused_rounds,
                steps_gained=self._scheduler.lookup_counts.steps_gained,
                kv=self._scheduler.kv_counts(),
            )
        for inbox, batch in batches.values():
            inbox.put(batch)


def _failures(request_ids: Sequence[int], error: SurefootError) -> list[Event]:
    return [Failed(request_id, error) for request_id in request_ids]
