"""Streams of events: asyncio and plain, their ends, cancellation, and slow readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from support.fakes import TIMEOUT_S, ScriptedEngine
from support.scheduler_runs import alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import TokenLogprobs
from surefoot.core.timings import Timings
from surefoot.errors import NotReadyError, QueueFullError
from surefoot.runtime.loop import EngineLoop
from surefoot.runtime.mailbox import Mailbox, RequestStream, merge_first
from surefoot.scheduling.scheduler import Scheduler


class Service:
    def __init__(self, engine: ScriptedEngine, max_queue_depth: int = 8) -> None:
        self.engine = engine
        config = SchedulerConfig(engine.num_windows, max_queue_depth)
        self.loop = EngineLoop(Scheduler(engine, config))
        self.mailbox = Mailbox(self.loop)
        self.loop.start()


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def begin(engine: ScriptedEngine, max_queue_depth: int = 8) -> Service:
        services.append(Service(engine, max_queue_depth))
        return services[-1]

    yield begin
    for service in services:
        service.engine.finish_all()
        assert service.loop.shutdown(drain=False, timeout=TIMEOUT_S)


def tokens_of(events: list[Event]) -> tuple[int, ...]:
    return tuple(
        token for event in events if isinstance(event, TokensEmitted) for token in event.token_ids
    )


async def read(stream: RequestStream) -> list[Event]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in stream]


def test_streams_end_after_their_terminal_event(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(2, 64, vocab=7))
    requests = [
        request(service.mailbox.new_request_id(), (index, 1), 5 + index) for index in range(4)
    ]

    async def serve() -> list[list[Event]]:
        streams = [service.mailbox.submit(one) for one in requests]
        return await asyncio.gather(*map(read, streams))

    for one, events in zip(requests, asyncio.run(serve()), strict=True):
        assert tokens_of(events) == alone(service.engine, one)
        assert [isinstance(event, Finished) for event in events].index(True) == len(events) - 1
        assert {event.request_id for event in events} == {one.request_id}


def test_request_ids_are_new(start: Callable[..., Service]) -> None:
    mailbox = start(ScriptedEngine()).mailbox
    assert [mailbox.new_request_id() for _ in range(3)] == [1, 2, 3]


def test_an_ended_stream_stays_ended(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine())

    async def serve() -> list[Event]:
        stream = service.mailbox.submit(request(1, (1, 2), 2))
        await read(stream)
        stream.cancel()
        return await read(stream)

    assert asyncio.run(serve()) == []


def test_cancel_ends_the_stream(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(1, 4096))

    async def serve() -> Event:
        stream = service.mailbox.submit(request(1, (1, 2), 4000))
        await anext(stream)
        stream.cancel()
        return (await read(stream))[-1]

    end = asyncio.run(serve())
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.CANCELLED


def test_a_slow_reader_gets_one_merged_event(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(1, 4096, vocab=7))
    slow, quick = request(1, (1, 2), 300, stop="zzz"), request(2, (1, 2), 1)

    async def serve() -> list[Event]:
        stream = service.mailbox.submit(slow)
        await read(service.mailbox.submit(quick))  # runs after the slow one has ended
        return await read(stream)

    events = asyncio.run(serve())
    assert [type(event) for event in events] == [TokensEmitted, Finished]
    assert tokens_of(events) == alone(service.engine, slow)
    assert isinstance(events[0], TokensEmitted)
    assert events[0].text == "".join("abcdefg"[token] for token in tokens_of(events))


def test_refusals_are_raised_at_once(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(1, 64, manual=True), 0)

    async def serve() -> list[Event]:
        stream = service.mailbox.submit(request(1, (1, 2), 2))
        with pytest.raises(QueueFullError):
            service.mailbox.submit(request(2, (1, 2), 2))
        service.engine.finish_all()
        events = await read(stream)
        assert service.loop.shutdown(drain=True, timeout=TIMEOUT_S)
        with pytest.raises(NotReadyError):
            service.mailbox.submit(request(3, (1, 2), 2))
        return events

    assert len(tokens_of(asyncio.run(serve()))) == 2


def test_one_crossing_per_tick_whatever_the_streams(start: Callable[..., Service]) -> None:
    """Rows that run together cross together: far fewer crossings than events."""
    service = start(ScriptedEngine(4, 64, vocab=7, manual=True))
    crossings: list[int] = []

    async def serve() -> list[list[Event]]:
        loop = asyncio.get_running_loop()
        plain = loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *args: object) -> object:
            crossings.append(1)
            return plain(callback, *args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        streams = [service.mailbox.submit(request(index, (index, 1), 20)) for index in range(1, 5)]
        service.engine.finish_all()
        return await asyncio.gather(*map(read, streams))

    replies = asyncio.run(serve())
    assert [len(tokens_of(events)) for events in replies] == [20] * 4
    assert len(crossings) <= len(service.engine.plans)


def test_a_closed_asyncio_loop_cancels_its_requests(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(1, 4096, manual=True))

    async def leave() -> None:
        service.mailbox.submit(request(1, (1, 2), 4000))

    asyncio.run(leave())
    service.engine.finish_all()
    events = list(service.mailbox.submit_sync(request(2, (3, 4), 3)))
    assert len(tokens_of(events)) == 3
    assert service.loop.stats().requests_cancelled == 1


def test_sync_streams(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(2, 64, vocab=7))
    one, other = request(1, (1, 2), 9), request(2, (2, 2), 7)
    streams = [service.mailbox.submit_sync(one), service.mailbox.submit_sync(other)]
    for each, stream in zip((one, other), streams, strict=True):
        events = list(stream)
        assert tokens_of(events) == alone(service.engine, each)
        assert isinstance(events[-1], Finished)
        assert list(stream) == []


def test_sync_cancel(start: Callable[..., Service]) -> None:
    service = start(ScriptedEngine(1, 4096))
    stream = service.mailbox.submit_sync(request(1, (1, 2), 4000))
    next(stream)
    stream.cancel()
    end = list(stream)[-1]
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.CANCELLED


def test_merging_stops_at_the_first_other_event() -> None:
    first = TokensEmitted(1, (5,), "a", (TokenLogprobs(-1.0),))
    second = TokensEmitted(1, (6, 7), "bc", (TokenLogprobs(-2.0), TokenLogprobs(-3.0)))
    end = Finished(1, FinishReason.STOP, "", 1, 3, Timings(1, 0.0, 3, 0.0))
    logprobs = (TokenLogprobs(-1.0), TokenLogprobs(-2.0), TokenLogprobs(-3.0))
    assert merge_first([first, second, end]) == (
        TokensEmitted(1, (5, 6, 7), "abc", logprobs),
        [end],
    )
    assert merge_first([first, end]) == (first, [end])
    early, late = (replace(first, timings=Timings(1, 0.0, n, 0.0)) for n in (1, 2))
    assert merge_first([early, late])[0] == replace(
        first, token_ids=(5, 5), text="aa", logprobs=logprobs[:1] * 2, timings=late.timings
    )
    assert merge_first([end]) == (end, [])
    failed = Failed(1, NotReadyError("x"))
    assert merge_first([TokensEmitted(1, (), ""), failed])[1] == [failed]
