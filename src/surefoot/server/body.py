"""Bytes off the socket to a JSON object, within limits; knows no field of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pydantic_core
from starlette.requests import Request

from surefoot.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    QueueFullError,
    UnsupportedMediaTypeError,
)
from surefoot.server.limits import BodyLimits
from surefoot.server.workers import Workers

JsonObject = dict[str, object]

Body = TypeVar("Body")

PARSED_INLINE_BYTES = 64 * 1024
"""Up to here parsing takes under a millisecond or two, less than a thread's turn."""


class BodyReader:
    """Reads bodies for all clients, so that together they stay within `max_buffered_bytes`."""

    def __init__(self, limits: BodyLimits, workers: Workers) -> None:
        self._limits = limits
        self._workers = workers
        self._buffered_bytes = 0

    async def read(self, request: Request, parse: Callable[[JsonObject], Body]) -> Body:
        """The body, through `parse`. Raises 415, 413, 503 or 400 (as `SurefootError`), or
        Starlette's `ClientDisconnect`."""
        require_json_type(request.headers.get("content-type"))
        self._check_declared(request.headers.get("content-length"))
        with self._buffer() as buffer:
            async for chunk in request.stream():
                self._append(buffer, chunk)
            body = bytes(buffer)

            def whole() -> Body:
                return parse(parse_object(body, self._limits.max_json_depth))

            return whole() if len(body) <= PARSED_INLINE_BYTES else await self._workers.run(whole)

    def _check_declared(self, content_length: str | None) -> None:
        declared = content_length or ""
        if declared.isdecimal() and int(declared) > self._limits.max_body_bytes:
            raise self._too_large(f"has {int(declared)} bytes")

    @contextmanager
    def _buffer(self) -> Iterator[bytearray]:
        buffer = bytearray()
        try:
            yield buffer
        finally:
            self._buffered_bytes -= len(buffer)

    def _append(self, buffer: bytearray, chunk: bytes) -> None:
        if len(buffer) + len(chunk) > self._limits.max_body_bytes:
            raise self._too_large(f"has at least {len(buffer) + len(chunk)} bytes")
        if self._buffered_bytes + len(chunk) > self._limits.max_buffered_bytes:
            raise QueueFullError(
                f"{self._buffered_bytes} bytes of bodies are being read; the limit is"
                f" {self._limits.max_buffered_bytes}; try again later"
            )
        buffer += chunk
        self._buffered_bytes += len(chunk)

    def _too_large(self, size: str) -> PayloadTooLargeError:
        limit = self._limits.max_body_bytes
        return PayloadTooLargeError(f"the body {size}; the limit is {limit} bytes")


def require_json_type(content_type: str | None) -> None:
    """Only JSON, said aloud: a foreign page cannot send that type without a CORS preflight."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        shown = media_type[:60] or "none"
        raise UnsupportedMediaTypeError(
            f"the Content-Type is {shown}; this route takes application/json"
        )


def parse_object(body: bytes, max_depth: int) -> JsonObject:
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        if str(error).startswith("recursion limit"):  # the parser's own, beyond any of ours
            raise _too_deep(max_depth) from None
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    _check_depth(value, max_depth)
    return value


def _check_depth(value: object, max_depth: int) -> None:
    """Breadth first, so that depth costs no stack."""
    level: list[object] = [value]
    for _ in range(max_depth):
        children: list[object] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return
    raise _too_deep(max_depth)


def _too_deep(max_depth: int) -> InvalidRequestError:
    return InvalidRequestError(f"the body is nested deeper than the limit of {max_depth} levels")
