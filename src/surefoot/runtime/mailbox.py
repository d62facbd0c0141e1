"""The one bridge between the scheduler's thread and its clients, asyncio or not.

A client gets a stream of its request's events that ends after the terminal one. Events cross
into an asyncio loop by one `call_soon_threadsafe` per tick, whatever the number of streams.

A client that does not read costs bounded memory: the unread `TokensEmitted` of a stream are
merged into one when it reads again, and a reply never exceeds its `max_tokens`. Nobody is
cancelled for being slow; a client that went away must call `cancel()`.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from surefoot.core.events import Event, Failed, Finished, TokensEmitted
from surefoot.core.request import Request
from surefoot.runtime.loop import EngineLoop


class RequestStream:
    """Async iterator over one request's events; belongs to one asyncio loop."""

    def __init__(self, request_id: int, cancel: Callable[[int], None]) -> None:
        self.request_id = request_id
        self._cancel = cancel
        self._unread: list[Event] = []
        self._arrived = asyncio.Event()
        self._ended = False

    def cancel(self) -> None:
        """The client is gone or has had enough. Harmless after the end; the stream still ends
        with its terminal event."""
        self._cancel(self.request_id)

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        await self._arrived.wait()
        event, self._unread = merge_first(self._unread)
        if not self._unread:
            self._arrived.clear()
        self._ended = isinstance(event, (Finished, Failed))
        return event

    def receive(self, event: Event) -> None:
        """Called by the inbox, on the stream's asyncio loop."""
        self._unread.append(event)
        self._arrived.set()


class SyncStream:
    """Iterator over one request's events for a client without asyncio (the command line)."""

    def __init__(self, request_id: int, cancel: Callable[[int], None]) -> None:
        self.request_id = request_id
        self._cancel = cancel
        self._batches: queue.SimpleQueue[Sequence[Event]] = queue.SimpleQueue()
        self._unread: list[Event] = []
        self._ended = False

    def cancel(self) -> None:
        """Ask for the end; the stream still ends with its terminal event."""
        self._cancel(self.request_id)

    def put(self, events: Sequence[Event]) -> None:
        self._batches.put(events)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._ended:
            raise StopIteration
        while not self._unread:
            self._unread.extend(self._batches.get())
        event = self._unread.pop(0)
        self._ended = isinstance(event, (Finished, Failed))
        return event


class Mailbox:
    """Submits requests to the scheduler's thread and hands out their streams."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._ids = itertools.count(1)
        self._inboxes: dict[asyncio.AbstractEventLoop, _AsyncioInbox] = {}
        self._lock = threading.Lock()

    def new_request_id(self) -> int:
        """An id no other request of this mailbox has."""
        return next(self._ids)

    def submit(self, request: Request) -> RequestStream:
        """Call on the asyncio loop that will read the stream. Raises `QueueFullError` or
        `NotReadyError` at once; later errors are `Failed` events."""
        inbox = self._inbox_of(asyncio.get_running_loop())
        stream = RequestStream(request.request_id, self._loop.cancel)
        inbox.streams[request.request_id] = stream
        try:
            self._loop.submit(request, inbox)
        except Exception:
            del inbox.streams[request.request_id]
            raise
        return stream

    def submit_sync(self, request: Request) -> SyncStream:
        """The same for a plain thread."""
        stream = SyncStream(request.request_id, self._loop.cancel)
        self._loop.submit(request, stream)
        return stream

    def _inbox_of(self, loop: asyncio.AbstractEventLoop) -> _AsyncioInbox:
        with self._lock:
            for closed in [known for known in self._inboxes if known.is_closed()]:
                del self._inboxes[closed]
            return self._inboxes.setdefault(loop, _AsyncioInbox(loop, self._loop.cancel))


class _AsyncioInbox:
    """All streams of one asyncio loop. `streams` is touched on that loop's thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cancel: Callable[[int], None]) -> None:
        self._loop = loop
        self._cancel = cancel
        self.streams: dict[int, RequestStream] = {}

    def put(self, events: Sequence[Event]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._dispatch, events)
        except RuntimeError:  # the asyncio loop is closed: its clients are gone
            for request_id in {event.request_id for event in events}:
                self._cancel(request_id)

    def _dispatch(self, events: Sequence[Event]) -> None:
        for event in events:
            self.streams[event.request_id].receive(event)
            if isinstance(event, (Finished, Failed)):
                del self.streams[event.request_id]


def merge_first(events: list[Event]) -> tuple[Event, list[Event]]:
    """The first event, with all the `TokensEmitted` that follow it directly merged in, and the
    events left over. Logprobs stay parallel to the tokens."""
    run: list[TokensEmitted] = []
    for event in events:
        if not isinstance(event, TokensEmitted):
            break
        run.append(event)
    if len(run) <= 1:
        return events[0], events[1:]
    logprobs = None
    if run[0].logprobs is not None:
        logprobs = tuple(entry for event in run for entry in event.logprobs or ())
    merged = TokensEmitted(
        run[0].request_id,
        tuple(token for event in run for token in event.token_ids),
        "".join(event.text for event in run),
        logprobs,
        run[-1].timings,
    )
    return merged, events[len(run) :]
