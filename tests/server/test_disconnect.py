"""Clients that leave: rows are cancelled whatever was going on, and nothing is held."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.server_fakes import END, TIMEOUT_S, FakeStream, Harness, hold
from surefoot.server.limits import ReplyLimits, ServerConfig

SOON = ServerConfig(reply=ReplyLimits(status_wait_s=0.01))


class AsgiClient:
    """One request by hand: `leave()` is the client going away."""

    def __init__(self, harness: Harness, path: str, body: dict[str, Any]) -> None:
        self.sent: list[Any] = []
        self.got_chunk = asyncio.Event()
        self._left = asyncio.Event()
        self._body: list[bytes] = [json.dumps(body).encode()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        }
        self.task = asyncio.create_task(harness.app(scope, self._receive, self._send))

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.got_chunk.set()


async def ended(harness: Harness) -> None:
    """The rows' readers get their last turn."""
    live = harness.app.state.api.live
    while live.num_groups:
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", [b"", b"ab"])
def test_leaving_cancels_every_row(path: str, stream: bool, tokens: bytes) -> None:
    async def test() -> None:
        harness = Harness(lambda row: row.emit(*tokens), SOON)
        field = {"messages": [{"role": "user", "content": "hi"}]}
        body = {"stream": stream, "n": 3} | (field if "chat" in path else {"prompt": "hi"})
        client = AsgiClient(harness, path, body)
        await harness.sink.submitted.wait()
        if stream and tokens:
            await client.got_chunk.wait()
        client.leave()
        await client.task
        assert [row.cancelled.is_set() for row in harness.sink.streams] == [True] * 3
        await ended(harness)
        assert b'surefoot_rows_total{outcome="cancelled"} 3.0' in harness.metrics()

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


def test_the_metrics_show_the_client_that_left() -> None:
    async def test() -> None:
        harness = Harness(hold)
        client = AsgiClient(harness, "/v1/completions", {"prompt": "hi"})
        await harness.sink.submitted.wait()
        assert b"surefoot_rows_open 1.0" in harness.metrics()
        client.leave()
        await client.task
        await ended(harness)
        page = harness.metrics()
        assert b"surefoot_rows_open 0.0" in page
        assert b'{method="POST",route="/v1/completions",status="499"} 1.0' in page

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


def test_a_handler_that_is_cancelled_cancels_its_rows() -> None:
    """What a forced shutdown does to it."""

    async def test() -> None:
        for stream in (False, True):
            harness = Harness(lambda row: row.emit(*b"a"), SOON)
            client = AsgiClient(harness, "/v1/completions", {"prompt": "hi", "stream": stream})
            await harness.sink.submitted.wait()
            if stream:
                await client.got_chunk.wait()
            client.task.cancel()
            await asyncio.gather(client.task, return_exceptions=True)
            assert harness.sink.streams[0].cancelled.is_set()
            await ended(harness)

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


def test_a_client_that_leaves_while_it_sends_is_no_fault() -> None:
    async def test() -> None:
        harness = Harness(hold)
        client = AsgiClient(harness, "/v1/completions", {"prompt": "hi"})
        client._body.clear()
        client.leave()
        await client.task
        assert client.sent == []
        assert harness.sink.streams == []

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


def test_staying_to_the_end_cancels_nothing() -> None:
    def finish(row: FakeStream) -> None:
        row.emit(*b"a", END)

    async def test() -> None:
        harness = Harness(finish)
        for stream in (False, True):
            client = AsgiClient(harness, "/v1/completions", {"prompt": "hi", "stream": stream})
            await client.task
        await ended(harness)
        assert b'surefoot_rows_total{outcome="cancelled"} 0.0' in harness.metrics()
        assert b'surefoot_rows_total{outcome="stop"} 2.0' in harness.metrics()

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))
