"""The rows of one reply as one stream of events, ended by whoever ends first: the rows, the
client, a time limit, or the server.

Owns no text and no reply format. A row is never dropped: each is read to its terminal event by
a task of its own, even when nobody waits for it any more, so that the meters see it end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from surefoot.core.events import Event, Failed, Finished, FinishReason
from surefoot.core.request import Request
from surefoot.errors import EngineError, NotReadyError, ReplyTimeoutError, SurefootError
from surefoot.server.limits import ReplyLimits
from surefoot.server.state import RequestSink, RequestStream

log = logging.getLogger(__name__)


class RowMeter(Protocol):
    """Counts one row's events; sees each exactly once."""

    def see(self, event: Event) -> None: ...


class Meters(Protocol):
    def open_row(self, request: Request) -> RowMeter: ...


@dataclass(frozen=True, slots=True)
class RowEvent:
    """`index`: the row's place in the reply, its choice index."""

    index: int
    event: Event


class _Mark(Enum):
    """What is no event: the reply was abandoned, or the reader has waited long enough."""

    END = 0
    ALARM = 1


class RowGroup:
    """Submitted rows. Read `events()` once; `abandon()` when the client has gone."""

    def __init__(self, streams: Sequence[RequestStream], meters: Sequence[RowMeter]) -> None:
        self._streams = streams
        # Room for one event of each row and the end mark: a row whose client is slow waits here,
        # and the mailbox merges what it emits meanwhile.
        self._arrived: asyncio.Queue[RowEvent | _Mark] = asyncio.Queue(len(streams) + 1)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._first: RowEvent | None = None
        self._over = False
        self._error: SurefootError | None = None
        self._started = self._last_seen = asyncio.get_running_loop().time()
        self._pumps = [
            asyncio.create_task(self._pump(index, stream, meter))
            for index, (stream, meter) in enumerate(zip(streams, meters, strict=True))
        ]

    @property
    def pumps(self) -> Sequence[asyncio.Task[None]]:
        """One task per row, done when the row has ended."""
        return self._pumps

    def abandon(self) -> None:
        """Nobody listens any more: cancel every row and end `events()`."""
        if self._over:
            return
        self._over = True
        for stream in self._streams:
            stream.cancel()
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(_Mark.END)
        self._set_alarm(math.inf)

    def fail(self, error: SurefootError) -> None:
        """End the reply with this error: rows are cancelled, `events()` raises it."""
        if not self._over:
            self._error = error
            self.abandon()

    async def wait_for_first(self, limits: ReplyLimits) -> None:
        """Wait up to `status_wait_s` for any row's first event; raise its error if it failed, or
        `ReplyTimeoutError`, so that the reply can still be a status."""
        self._first = await self._next(limits.status_wait_s, limits)

    async def events(self, limits: ReplyLimits) -> AsyncIterator[RowEvent | None]:
        """Events until every row has ended. None after each `keepalive_s` of silence. Ends early
        when abandoned. Raises what a row failed with, or `ReplyTimeoutError`."""
        open_rows = len(self._streams)
        while open_rows and not self._over:
            item = self._first or await self._next(limits.keepalive_s, limits)
            self._first = None
            if item is not None:
                open_rows -= isinstance(item.event, Finished)
            if not self._over:
                yield item
        self._set_alarm(math.inf)
        if self._error is not None:
            raise self._error

    async def _next(self, wait_s: float, limits: ReplyLimits) -> RowEvent | None:
        """The next event, or None after `wait_s`, which no limit of time outlasts."""
        loop = asyncio.get_running_loop()
        item = await self._take(min(loop.time() + wait_s, *self._ends(limits)))
        now = loop.time()
        if item is not None:
            self._last_seen = now
            self._check(item.event)
        in_all, idle = self._ends(limits)
        if now >= min(in_all, idle):
            what = (
                f"{limits.max_total_s:g} s in all"
                if in_all <= idle
                else f"{limits.max_idle_s:g} s without a token"
            )
            error = ReplyTimeoutError(f"the reply took longer than {what}")
            self.fail(error)
            raise error
        return item

    def _ends(self, limits: ReplyLimits) -> tuple[float, float]:
        """When the reply has taken too long, in all and without a token, by the loop's clock."""
        return (
            self._started + limits.max_total_s if limits.max_total_s else math.inf,
            self._last_seen + limits.max_idle_s if limits.max_idle_s else math.inf,
        )

    def _check(self, event: Event) -> None:
        error: SurefootError | None = None
        if isinstance(event, Failed):
            error = event.error
        elif isinstance(event, Finished) and event.reason is FinishReason.CANCELLED:
            error = NotReadyError("the reply was cut short: the server is shutting down")
        if error is not None:
            self.fail(error)
            raise error

    async def _take(self, until: float) -> RowEvent | None:
        """The next event, or None at `until` (the loop's clock) and when abandoned."""
        loop = asyncio.get_running_loop()
        item: RowEvent | _Mark = _Mark.ALARM
        while item is _Mark.ALARM:
            if self._arrived.empty():
                if loop.time() >= until:
                    return None
                if until < self._alarm_at:
                    self._set_alarm(until)
            item = await self._arrived.get()
        if self._error is not None:
            raise self._error
        return None if isinstance(item, _Mark) else item

    def _set_alarm(self, when: float) -> None:
        """One timer for many waits: it may ring early, and is set again only then. A timer for
        each token would cost more than the rest of the wait."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = when
        if when < math.inf:
            self._alarm = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_at = math.inf
        if self._arrived.empty():
            self._arrived.put_nowait(_Mark.ALARM)

    async def _pump(self, index: int, stream: RequestStream, meter: RowMeter) -> None:
        try:
            async for event in stream:
                meter.see(event)
                if not self._over:
                    await self._arrived.put(RowEvent(index, event))
        except Exception:
            log.exception("reading a row's events failed")
            self.fail(EngineError("reading the reply failed"))


class LiveRows:
    """Every group of the server that has not ended, so that a shutdown can end them all."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._groups: set[RowGroup] = set()

    def submit(self, sink: RequestSink, rows: Sequence[Request]) -> RowGroup:
        """All rows or none: if one is refused the others are cancelled and its error raised."""
        streams: list[RequestStream] = []
        refusal: SurefootError | None = None
        for row in rows:
            try:
                streams.append(sink.submit(row))
            except SurefootError as error:
                refusal = error
                break
        meters = [self._meters.open_row(row) for row in rows[: len(streams)]]
        group = RowGroup(streams, meters)
        self._keep(group)
        if refusal is not None:
            group.abandon()
            raise refusal
        return group

    def fail_all(self, error: SurefootError) -> None:
        for group in list(self._groups):
            group.fail(error)

    @property
    def num_groups(self) -> int:
        return len(self._groups)

    def pumps(self) -> list[asyncio.Task[None]]:
        """One task for every row that is being read."""
        return [pump for group in self._groups for pump in group.pumps]

    def _keep(self, group: RowGroup) -> None:
        self._groups.add(group)
        ended = asyncio.gather(*group.pumps, return_exceptions=True)
        ended.add_done_callback(lambda _: self._groups.discard(group))
