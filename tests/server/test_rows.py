"""The rows of one reply: who may end it, and that every row is read to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from support.server_fakes import END, TIMEOUT_S, FakeSink, FakeStream, hold
from surefoot.core.events import Event, Finished, TokensEmitted
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.errors import EngineError, NotReadyError, ReplyTimeoutError
from surefoot.server.limits import ReplyLimits
from surefoot.server.rows import LiveRows, RowGroup


class Seen:
    """Meters that remember every event of every row."""

    def __init__(self) -> None:
        self.rows: list[list[Event]] = []

    def open_row(self, request: Request) -> SeenRow:
        self.rows.append([])
        return SeenRow(self.rows[-1])


class SeenRow:
    def __init__(self, events: list[Event]) -> None:
        self.see = events.append


class Setting:
    """`num_rows` rows, submitted; the test emits."""

    def __init__(self, num_rows: int) -> None:
        self.sink = FakeSink(hold)
        self.seen = Seen()
        self.live = LiveRows(self.seen)
        requests = [
            Request(i, (1,), 100, SamplingParams(), PlainText(), frozenset({END}))
            for i in range(num_rows)
        ]
        self.group = self.live.submit(self.sink, requests)

    @property
    def streams(self) -> list[FakeStream]:
        return self.sink.streams

    async def ended(self) -> None:
        """Every row was read to its end, and the group forgotten."""
        await asyncio.gather(*self.group.pumps)
        await asyncio.sleep(0)
        assert self.live.num_groups == 0
        assert all(not isinstance(events[-1], TokensEmitted) for events in self.seen.rows)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TIMEOUT_S))


async def read(group: RowGroup, limits: ReplyLimits | None = None) -> list[tuple[int, object]]:
    """Row and tokens, or row and finish reason, of every event; None for silence is left out."""
    items: list[tuple[int, object]] = []
    async for item in group.events(limits or ReplyLimits()):
        if item is None:
            continue
        event = item.event
        items.append((item.index, event.reason if isinstance(event, Finished) else event.token_ids))
    return items


def test_events_of_all_rows_until_the_last_has_ended() -> None:
    async def test() -> None:
        setting = Setting(2)
        setting.streams[1].emit(5, END)
        setting.streams[0].emit(6, 7, END)
        items = await read(setting.group)
        assert [item for item in items if item[0] == 0] == [
            (0, (6,)),
            (0, (7,)),
            (0, (END,)),
            (0, "stop"),
        ]
        assert [item for item in items if item[0] == 1] == [(1, (5,)), (1, (END,)), (1, "stop")]
        await setting.ended()

    run(test())


def test_an_abandoned_reply_ends_at_once_and_its_rows_are_read_out() -> None:
    async def test() -> None:
        setting = Setting(3)
        for stream in setting.streams:
            stream.emit(*range(50))
        reader = asyncio.create_task(read(setting.group))
        while setting.seen.rows[0] == []:
            await asyncio.sleep(0)
        setting.group.abandon()
        setting.group.abandon()
        await reader
        assert all(stream.cancelled.is_set() for stream in setting.streams)
        await setting.ended()
        assert [len(events) for events in setting.seen.rows] == [51, 51, 51]

    run(test())


def test_abandoned_before_anything_arrived() -> None:
    async def test() -> None:
        setting = Setting(1)
        reader = asyncio.create_task(read(setting.group))
        await asyncio.sleep(0)
        setting.group.abandon()
        assert await reader == []
        await setting.ended()

    run(test())


def test_a_slow_reader_leaves_events_in_the_stream() -> None:
    """One event waits for each row and one beside them: the mailbox can merge the rest."""

    async def test() -> None:
        setting = Setting(1)
        setting.streams[0].emit(*range(50), END)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(setting.seen.rows[0]) == 3
        assert len(await read(setting.group)) == 52
        await setting.ended()

    run(test())


def test_the_server_ends_every_reply() -> None:
    async def test() -> None:
        setting = Setting(2)
        setting.live.fail_all(NotReadyError("going down"))
        with pytest.raises(NotReadyError, match="going down"):
            await read(setting.group)
        await setting.ended()
        assert [stream.cancelled.is_set() for stream in setting.streams] == [True, True]

    run(test())


def test_waiting_for_the_first_event_loses_nothing() -> None:
    async def test() -> None:
        setting = Setting(1)
        await setting.group.wait_for_first(ReplyLimits(status_wait_s=0.0))
        setting.streams[0].emit(5, END)
        await setting.group.wait_for_first(ReplyLimits(status_wait_s=TIMEOUT_S))
        assert await read(setting.group) == [(0, (5,)), (0, (END,)), (0, "stop")]

    run(test())


def test_a_failure_is_raised_from_the_first_wait_and_cancels_the_rest() -> None:
    async def test() -> None:
        setting = Setting(2)
        setting.streams[1].fail(EngineError("broke"))
        with pytest.raises(EngineError, match="broke"):
            await setting.group.wait_for_first(ReplyLimits(status_wait_s=TIMEOUT_S))
        assert setting.streams[0].cancelled.is_set()
        await setting.ended()

    run(test())


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (ReplyLimits(max_total_s=0.05, keepalive_s=0.01), "in all"),
        (ReplyLimits(max_idle_s=0.05, keepalive_s=0.01), "without a token"),
        (ReplyLimits(max_total_s=0.05, keepalive_s=1000), "in all"),
        (ReplyLimits(max_idle_s=0.05, keepalive_s=1000), "without a token"),
    ],
)
def test_a_reply_that_takes_too_long_is_cancelled(limits: ReplyLimits, what: str) -> None:
    async def test() -> None:
        setting = Setting(1)
        setting.streams[0].emit(5)
        with pytest.raises(ReplyTimeoutError, match=f"0.05 s {what}"):
            await read(setting.group, limits)
        assert setting.streams[0].cancelled.is_set()
        await setting.ended()

    run(test())


def test_silence_asks_for_a_sign_of_life() -> None:
    async def test() -> None:
        setting = Setting(1)
        limits = ReplyLimits(keepalive_s=0.01, max_idle_s=0, max_total_s=0)
        seen: list[object] = []
        async for item in setting.group.events(limits):
            seen.append(item)
            if len(seen) == 2:
                setting.streams[0].emit(END)
        assert seen[:2] == [None, None]
        assert [item is None for item in seen[-2:]] == [False, False]

    run(test())


def test_a_stream_that_breaks_fails_its_reply() -> None:
    class Broken(FakeStream):
        async def __aiter__(self) -> Any:
            yield TokensEmitted(0, (1,), "a")
            raise RuntimeError("a bug")

    async def test() -> None:
        request = Request(0, (1,), 5, SamplingParams(), PlainText())
        group = RowGroup([Broken(request)], [SeenRow([])])
        with pytest.raises(EngineError):
            await read(group)

    run(test())
