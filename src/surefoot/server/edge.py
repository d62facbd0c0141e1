"""What every request passes first and last: id, host, key, errors, count, log line.

The one place where an exception becomes a reply.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.errors import SurefootError
from surefoot.server.auth import AllowedHosts, ApiKeys
from surefoot.server.logs import current_request_id
from surefoot.server.replies import error_reply, internal_error_reply

log = logging.getLogger(__name__)
access_log = logging.getLogger("surefoot.access")

OPEN_PATHS = frozenset({"/health"})
"""Routes that need no key: a load balancer has none."""

PROBE_PATHS = frozenset({"/health", "/metrics"})
"""Routes whose access is logged at debug level."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)

_MAX_PATH = 200

CountRequest = Callable[[str, str, int], None]
"""Path, method and status of a request that was answered."""


class Edge:
    """Pure ASGI middleware; see the module."""

    def __init__(
        self, app: ASGIApp, *, keys: ApiKeys, hosts: AllowedHosts, count: CountRequest
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        current_request_id.set(exchange.request_id)
        try:
            self._hosts.check(scope["headers"])
            if scope["path"] not in OPEN_PATHS:
                self._keys.check(scope["headers"])
            await self._app(scope, receive, exchange.send)
        except SurefootError as error:
            if error.http_status == 500:
                log.error("%s: %s", error.code, error.message)
            await exchange.answer(error_reply(error), receive)
        except ClientDisconnect:
            log.debug("the client left before its request was whole")
        except Exception:
            log.exception("a request failed unexpectedly")
            await exchange.answer(internal_error_reply(), receive)
        finally:
            self._finish(exchange)

    def _finish(self, exchange: _Exchange) -> None:
        method, path = exchange.scope["method"], exchange.scope["path"]
        self._count(path, method, exchange.status)
        # Probes and scrapes come every few seconds for ever; they would bury everything else.
        level = logging.DEBUG if path in PROBE_PATHS else logging.INFO
        access_log.log(
            level,
            "%s %s %d",
            method,
            shown_path(path),
            exchange.status,
            extra={"milliseconds": round(1000 * (time.monotonic() - exchange.started), 1)},
        )


class _Exchange:
    """One request and its reply so far. `status` 499: the client left before there was one."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.started = time.monotonic()
        self.request_id = request_id_of(scope)
        self.status = 499
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.request_id
        await self._send(message)

    async def answer(self, reply: Response, receive: Receive) -> None:
        """Send the reply, unless another one has begun."""
        if self.status == 499:
            await reply(self.scope, receive, self.send)


def shown_path(path: str) -> str:
    """A client's path, which was percent-decoded, on one line that a terminal takes as text."""
    short = path if len(path) <= _MAX_PATH else path[:_MAX_PATH] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)


def request_id_of(scope: Scope) -> str:
    """The client's own id if it is plain and short, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return str(given)
    return f"req-{secrets.token_hex(12)}"
