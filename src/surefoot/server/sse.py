"""A streamed reply as server-sent events, and the watch for clients that leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.errors import SurefootError
from surefoot.server.generation import Json
from surefoot.server.replies import INTERNAL_MESSAGE, encode_json, error_body, error_object

log = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
SIGN_OF_LIFE = b": still working\n\n"
"""An SSE comment: clients skip it, proxies see traffic."""

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-store",
    "X-Accel-Buffering": "no",
}


def frame(content: Json) -> bytes:
    """One event on one line: JSON escapes its line breaks."""
    return b"data: " + encode_json(content) + b"\n\n"


@asynccontextmanager
async def watching(receive: Receive, on_disconnect: Callable[[], None]) -> AsyncIterator[None]:
    """Call `on_disconnect` if the client leaves while the block runs. The body must have been
    read: nothing else may call `receive` meanwhile."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        on_disconnect()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class SseReply(Response):
    """Sends each chunk as one event, then `[DONE]`; an error ends the stream as an event of its
    own, without `[DONE]`. `leave` is called once the stream is over, however it ended."""

    def __init__(
        self,
        chunks: AsyncIterator[Json | None],
        leave: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._chunks = chunks
        self._leave = leave
        self.init_headers({**SSE_HEADERS, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with watching(receive, self._leave):
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                async for data in self._frames():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._leave()

    async def _frames(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield SIGN_OF_LIFE if chunk is None else frame(chunk)
        except SurefootError as error:
            log.warning("a stream ended with an error: %s", error.message)
            yield frame(error_body(error))
        except Exception:
            log.exception("a stream ended with an unexpected error")
            yield frame(error_object(INTERNAL_MESSAGE, "server_error", code="internal_error"))
        else:
            yield DONE
