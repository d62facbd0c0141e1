"""Runs the application on a bound socket until a signal, a failed load, or a stop.

The first SIGTERM or SIGINT drains: nothing new is accepted, running replies finish within the
drain timeout, then they end with an error event. A second signal stops at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from surefoot.errors import NotReadyError
from surefoot.server.limits import ServerConfig
from surefoot.server.protocol import BoundedProtocol
from surefoot.server.rows import LiveRows
from surefoot.server.state import ServerState

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
END_S = 2
"""Seconds that replies get to write their last event once the drain timeout has passed."""


class DrainingServer(uvicorn.Server):
    """`run(sockets=[...])` blocks; `stop()` from another thread drains as a signal does."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, live: LiveRows, drain_timeout_s: float
    ) -> None:
        super().__init__(config)
        self._state = state
        self._live = live
        self._drain_timeout_s = drain_timeout_s

    def stop(self) -> None:
        """Drain; called again, stop now."""
        if self.should_exit:
            self.force_exit = True
            log.warning("stopping at once: replies that run are cut short")
        else:
            log.info("stopping: replies that run have %g s to finish", self._drain_timeout_s)
        self._state.draining = True
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again once it is done, which would end the process before
        its owner has closed the engine: this one does not."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._state.failure is not None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.draining = True
        error = NotReadyError("the reply was cut short: the server is shutting down")
        loop = asyncio.get_running_loop()
        cut = loop.call_later(self._drain_timeout_s, self._live.fail_all, error)
        await super().shutdown(sockets)
        cut.cancel()
        if self.server_state.tasks:  # stopped by a second signal
            self._live.fail_all(error)
            await asyncio.wait(set(self.server_state.tasks), timeout=END_S)


def build_server(app: Starlette, state: ServerState, config: ServerConfig) -> DrainingServer:
    """A server for an application made by `create_app` with the same state and config."""
    limits = config.connection
    protocol: Any = partial(BoundedProtocol, limits, app.state.api.metrics.connections)
    uvicorn_config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="auto",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=math.ceil(limits.keepalive_timeout_s),
        timeout_graceful_shutdown=math.ceil(config.drain_timeout_s) + END_S,
    )
    live: LiveRows = app.state.api.live
    return DrainingServer(uvicorn_config, state, live, config.drain_timeout_s)


def run_server(
    app: Starlette, listener: socket.socket, state: ServerState, config: ServerConfig
) -> None:
    """Serve until stopped. Raises `state.failure` if the model failed to load."""
    try:
        build_server(app, state, config).run(sockets=[listener])
    finally:
        app.state.api.close()
    if state.failure is not None:
        raise state.failure
