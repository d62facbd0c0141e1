"""A tiny byte-level model and a runtime that a test drives by hand."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx
from starlette.applications import Starlette

from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request, TokenLogprobs
from surefoot.core.timings import Timings
from surefoot.errors import InvalidRequestError, SurefootError
from surefoot.output.stop_text import RowText
from surefoot.server.app import create_app
from surefoot.server.limits import ServerConfig
from surefoot.server.state import ServedModel, ServerState

TIMEOUT_S = 20.0

END = 256
OTHER_SPECIAL = 257


class ByteTokenizer:
    """Ids 0 to 255 are bytes; 256 ends a reply; 257 is another special token."""

    vocab_size = 258
    end_ids = frozenset({END})
    special_ids = frozenset({END, OTHER_SPECIAL})
    add_bos = False
    strips_leading_space = False

    def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]:
        pieces = text.split("<|end|>") if parse_special else [text]
        ids = list(pieces[0].encode())
        for piece in pieces[1:]:
            ids += [END, *piece.encode()]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < END else self.token_text(token_id).encode()

    def token_text(self, token_id: int) -> str:
        return {END: "<|end|>", OTHER_SPECIAL: "<|other|>"}.get(token_id) or chr(token_id)


TOKENIZER = ByteTokenizer()


def encode_chat(messages: Sequence[Mapping[str, object]]) -> list[int]:
    """`role:content;` for each message, then `>`; a wizard is refused by the template."""
    if any(message["role"] == "wizard" for message in messages):
        raise InvalidRequestError("chat template: no wizards here", param="messages")
    text = "".join(f"{message['role']}:{message['content']};" for message in messages)
    return TOKENIZER.encode(text + ">", parse_special=False, add_bos=False)


class FakeStream:
    """One row. The test (or the sink's script) emits; the row ends by the usual rules."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.cancelled = asyncio.Event()
        self.cancelled_for_threads = threading.Event()
        self.ended = False
        self._num_emitted = 0
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def emit(self, *token_ids: int) -> None:
        """Tokens one at a time, until one of them ends the row."""
        for token_id in token_ids:
            if not self.ended:
                self._emit_one(token_id)

    def _emit_one(self, token_id: int) -> None:
        request = self.request
        self._num_emitted += 1
        is_end = token_id in request.end_ids
        text = "" if is_end else request.text.push(token_id)
        logprobs = None
        if request.sampling.logprobs is not None:
            top = tuple((65 + i, -1.0 - i) for i in range(request.sampling.logprobs))
            logprobs = (TokenLogprobs(-0.5, top),)
        self._put(TokensEmitted(request.request_id, (token_id,), text, logprobs))
        if is_end or request.text.stopped:
            self.finish(FinishReason.STOP)
        elif self._num_emitted == request.max_tokens:
            self.finish(FinishReason.LENGTH)

    def finish(self, reason: FinishReason) -> None:
        if self.ended:
            return
        prompt, count = len(self.request.prompt_ids), self._num_emitted
        timings = Timings(prompt, 10.0, count, 20.0, cache_n=1)
        text = self.request.text.finish()
        self._put(Finished(self.request.request_id, reason, text, prompt, count, timings))

    def fail(self, error: SurefootError) -> None:
        self._put(Failed(self.request.request_id, error))

    def cancel(self) -> None:
        self.cancelled.set()
        self.cancelled_for_threads.set()
        self.finish(FinishReason.CANCELLED)

    def _put(self, event: Event) -> None:
        self.ended = not isinstance(event, TokensEmitted)
        self._events.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if not isinstance(event, TokensEmitted):
                return


Script = Callable[[FakeStream], None]


def say(text: str) -> Script:
    """Every row answers this text and ends."""
    return lambda stream: stream.emit(*text.encode(), END)


def hold(stream: FakeStream) -> None:
    """Emit nothing: the test does."""


class FakeSink:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.streams: list[FakeStream] = []
        self.submitted = asyncio.Event()
        self.submitted_for_threads = threading.Semaphore(0)
        self.refuse_after: tuple[int, SurefootError] | None = None
        self._ids = itertools.count(1)

    def new_request_id(self) -> int:
        return next(self._ids)

    def submit(self, request: Request) -> FakeStream:
        if self.refuse_after is not None and len(self.streams) >= self.refuse_after[0]:
            raise self.refuse_after[1]
        stream = FakeStream(request)
        self.streams.append(stream)
        self.script(stream)
        self.submitted.set()
        self.submitted_for_threads.release()
        return stream

    @property
    def requests(self) -> list[Request]:
        return [stream.request for stream in self.streams]


def served_model(sink: Any, **changes: Any) -> ServedModel:
    fields: dict[str, Any] = {
        "id": "tiny",
        "created": 1_700_000_000,
        "tokenizer": TOKENIZER,
        "encode_chat": encode_chat,
        "make_text": lambda stop: RowText(TOKENIZER, stop),
        "context_length": 200,
        "sink": sink,
        "aliases": ("small",),
        "properties": lambda: {"threads": 2},
    }
    return ServedModel(**(fields | changes))


class Harness:
    """An application over a fake runtime, and a client for it."""

    def __init__(
        self, script: Script = hold, config: ServerConfig | None = None, **model: Any
    ) -> None:
        self.sink = FakeSink(script)
        self.state = ServerState()
        self.state.set_ready(served_model(self.sink, **model))
        self.app: Starlette = create_app(self.state, config or ServerConfig())

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """One request on an event loop of its own."""

        async def run() -> httpx.Response:
            async with asyncio.timeout(TIMEOUT_S), self.client() as client:
                return await client.request(method, path, **kwargs)

        return asyncio.run(run())

    def post(self, path: str, body: object) -> httpx.Response:
        return self.send("POST", path, json=body)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", path, headers=headers)

    def chat(self, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "hi"}]
        return self.post("/v1/chat/completions", {"messages": messages} | body)

    def complete(self, **body: Any) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": "hi"} | body)

    def metrics(self) -> bytes:
        page: bytes = self.app.state.api.metrics.render()
        return page
