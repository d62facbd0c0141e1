"""The HTTP/1.1 connection with limits on what a client may cost before and while it is served.

uvicorn's h11 protocol, with bounds on headers, on the time to send them and a body, and on the
time a reply waits for a client that does not read. Knows no route; a refusal here has OpenAI's
error shape too, and is followed by a closed connection.
"""

from __future__ import annotations

import asyncio
import http
import logging
import socket
from contextlib import suppress
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from surefoot.server.limits import ConnectionLimits
from surefoot.server.replies import encode_json, error_object

log = logging.getLogger(__name__)

LINGER_S = 2.0
"""After a refusal what the client still sends is read and dropped for so long: closing at once
would reset the connection, and the refusal would be lost on its way."""


class ConnectionMeter(Protocol):
    """Counts connections; `reason` is one of `headers`, `body`, `connections`, `malformed`."""

    def opened(self) -> None: ...

    def closed(self) -> None: ...

    def refused(self, reason: str) -> None: ...

    def stalled(self) -> None: ...


class LimitedConnection(h11.Connection):
    """h11 checks the size of headers only while they are incomplete; this checks them whole,
    and remembers the status of a refusal."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=limits.max_header_bytes)
        self._limits = limits
        self.refusal_status = 400
        self.refusal_message: str | None = None

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            # h11 hints at 501 for a transfer coding it does not know: theirs, not ours.
            self.refusal_status = 400 if error.error_status_hint >= 500 else error.error_status_hint
            if error.error_status_hint == 431:
                self.refusal_message = self._too_large("more bytes")
            raise
        if isinstance(event, h11.Request):
            self.refusal_message = self._excess(event)
            if self.refusal_message is not None:
                self.refusal_status = 431
                raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
        return event

    def _excess(self, request: h11.Request) -> str | None:
        """What is wrong with whole headers, if anything is."""
        size = len(request.target) + sum(len(n) + len(v) + 4 for n, v in request.headers)
        count, limit = len(request.headers), self._limits.max_headers
        if size > self._limits.max_header_bytes:
            return self._too_large(f"{size} bytes")
        return f"there are {count} headers; the limit is {limit}" if count > limit else None

    def _too_large(self, size: str) -> str:
        limit = self._limits.max_header_bytes
        return f"the request line and headers hold {size}; the limit is {limit} bytes"


class BoundedProtocol(H11Protocol):
    """One client connection.

    At any moment at most one deadline runs, that of the present `_phase`: `headers`, `body`, or
    `discard` (the reply is out, the body is not all in). Besides it a stall timer runs while the
    client does not read.
    """

    def __init__(
        self, limits: ConnectionLimits, meter: ConnectionMeter, **uvicorn_arguments: Any
    ) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._meter = meter
        self.conn: LimitedConnection = LimitedConnection(limits)
        self._phase: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        with suppress(OSError):  # the client may have gone already
            size = self._limits.send_buffer_bytes
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        self._meter.opened()
        if len(self.connections) > self._limits.max_connections:
            self._refuse(
                503,
                f"{len(self.connections)} connections are open; the limit is"
                f" {self._limits.max_connections}; try again later",
                "connections",
            )
        self._follow_phase()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._follow_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow_phase()
        self._end_closing()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's name for every refusal of malformed input."""
        status = self.conn.refusal_status
        reason = "headers" if status == 431 else "malformed"
        self._refuse(status, self.conn.refusal_message or msg, reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._meter.closed()
        self._unset_keepalive_if_required()
        for timer in (self._deadline, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None and not self.transport.is_closing():
            self._stall.cancel()
            self._stall = None

    def shutdown(self) -> None:
        if self._refused:
            self.transport.abort()
            return
        super().shutdown()
        self._end_closing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_closing()

    def _present_phase(self) -> str | None:
        theirs = self.conn.their_state
        if self._refused:
            return "discard"
        if theirs is h11.IDLE and self.timeout_keep_alive_task is None:
            return "headers"
        if theirs is h11.SEND_BODY:
            answered = self.cycle is not None and self.cycle.response_complete
            return "discard" if answered else "body"
        return None

    def _follow_phase(self) -> None:
        """A phase keeps the deadline it started with, however its bytes trickle in."""
        phase = self._present_phase()
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase is not None:
            self._deadline = self.loop.call_later(self._seconds_for(phase), self._on_deadline)

    def _seconds_for(self, phase: str) -> float:
        return {
            "headers": self._limits.header_timeout_s,
            "body": self._limits.body_timeout_s,
            "discard": LINGER_S,
        }[phase]

    def _on_deadline(self) -> None:
        if self._phase == "discard" or self.transport.is_closing():
            self.transport.abort()
            return
        assert self._phase is not None, "a deadline belongs to a phase"
        log.info("a client took too long to send its %s", self._phase)
        limit = self._seconds_for(self._phase)
        message = f"the {self._phase} took longer to arrive than the limit of {limit:g} s"
        self._refuse(408, message, self._phase)
        self._follow_phase()

    def _refuse(self, status: int, message: str, reason: str) -> None:
        """Answer outside the application, unless a reply is on its way already; then drop what
        still comes in for a while, and close."""
        if self._refused:
            return
        self._refused = True
        self._meter.refused(reason)
        self._unset_keepalive_if_required()
        started = self.cycle is not None and self.cycle.response_started
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if started:
                self.transport.abort()
                return
        self.transport.write(refusal_bytes(status, message))
        try:
            self.transport.write_eof()
        except OSError:  # the client has gone
            self.transport.abort()
            return
        self.flow.resume_reading()
        self._follow_phase()

    def _start_stall_timer(self) -> None:
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.write_stall_s, self._on_stall)

    def _on_stall(self) -> None:
        self._meter.stalled()
        log.info("a client did not read its reply for %g s", self._limits.write_stall_s)
        self.transport.abort()

    def _end_closing(self) -> None:
        """A transport that closes waits for its last bytes to be read: not for ever."""
        if self.transport.is_closing():
            self._start_stall_timer()


def refusal_bytes(status: int, message: str) -> bytes:
    overloaded = status == 503
    error_type = "overloaded_error" if overloaded else "invalid_request_error"
    code = "overloaded" if overloaded else "bad_http_request"
    body = encode_json(error_object(message, error_type, code=code))
    head = [
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if status == 503:
        head.append("retry-after: 1")
    return "\r\n".join([*head, "", ""]).encode() + body
