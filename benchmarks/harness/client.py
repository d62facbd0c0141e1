"""One OpenAI-compatible server over HTTP, as any client sees it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.sse import Reply, ReplyBuilder, data_of

TIMEOUT_S = 600.0

Body = Mapping[str, Any]


class HttpError(Exception):
    """An answer other than 200, with its status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text[:300]}")
        self.status = status


class NotReadyError(Exception):
    """A server was not ready in time, or ended."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the server's root, with or without a final `/v1`. Safe to use from many threads:
    each request has a connection of its own."""

    url: str

    def stream_chat(self, body: Body) -> Reply:
        """Raises `HttpError`, `StreamError`, or `OSError`."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        connection = self._connection()
        began = time.perf_counter()
        try:
            response = self._send(connection, "POST", "/v1/chat/completions", asked)
            builder = ReplyBuilder()
            for data in data_of(iter(response.readline, b"")):
                builder.add(time.perf_counter() - began, data)
                if builder.done:
                    break
        finally:
            connection.close()
        return builder.reply()

    def get(self, path: str) -> Any:
        """The JSON at `path`. Raises `HttpError` or `OSError`."""
        connection = self._connection()
        try:
            return json.loads(self._send(connection, "GET", path, None).read())
        finally:
            connection.close()

    def wait_ready(self, timeout_s: float, alive: Callable[[], bool]) -> None:
        """Until `/health` says 200. Raises `NotReadyError`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not alive():
                raise NotReadyError(f"the server for {self.url} ended while it was starting")
            try:
                self.get("/health")
            except (HttpError, OSError, http.client.HTTPException):
                time.sleep(0.2)
            else:
                return
        raise NotReadyError(f"{self.url} was not ready after {timeout_s:.0f} s")

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.netloc, timeout=TIMEOUT_S)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Body | None
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        prefix = urlsplit(self.url).path.rstrip("/").removesuffix("/v1")
        connection.request(method, prefix + path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise HttpError(response.status, response.read().decode("utf-8", "replace"))
        return response


def chat_body(
    messages: Sequence[Mapping[str, str]], max_tokens: int, sampling: Mapping[str, Any]
) -> dict[str, Any]:
    return {"messages": list(messages), "max_tokens": max_tokens, **sampling}
