"""A real server on a real socket, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.fakes import ScriptedEngine
from support.server_fakes import FakeSink, Script, hold, served_model
from surefoot.config import SchedulerConfig
from surefoot.runtime.loop import EngineLoop
from surefoot.runtime.mailbox import Mailbox
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage
from surefoot.server.app import create_app
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import base_url, bind_socket
from surefoot.server.serve import build_server
from surefoot.server.state import ServerState

TIMEOUT_S = 30.0


class LiveServer:
    """Not ready until `state.set_ready`. `stop()` drains and waits for the thread."""

    def __init__(self, config: ServerConfig | None = None, port: int = 0) -> None:
        config = config or ServerConfig()
        self.state = ServerState()
        self.listener = bind_socket("127.0.0.1", port)
        self.url = base_url(self.listener)
        self.port: int = self.listener.getsockname()[1]
        self.app = create_app(self.state, config)
        self.server = build_server(self.app, self.state, config)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.server.run(sockets=[self.listener])

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive(), "the server did not stop"
        self.app.state.api.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)


@contextmanager
def serving(
    script: Script = hold, config: ServerConfig | None = None, **model: Any
) -> Iterator[tuple[LiveServer, FakeSink]]:
    """Ready at once, over the fake runtime."""
    server = LiveServer(config)
    sink = FakeSink(script)
    server.state.set_ready(served_model(sink, **model))
    try:
        yield server, sink
    finally:
        server.server.stop()
        server.stop()


class LiveLoop:
    """The real scheduler, loop and mailbox over a scripted engine, and a server before them. An
    engine with blocks gets a prefix cache."""

    def __init__(
        self,
        engine: ScriptedEngine,
        max_queue_depth: int,
        port: int = 0,
        prompt_lookup: PromptLookup | None = None,
    ) -> None:
        self.engine = engine
        scheduling = SchedulerConfig(engine.num_windows, max_queue_depth)
        prefixes = PrefixCache(engine, "scripted") if engine.num_blocks else None
        storage = RowStorage(engine, prefixes=prefixes)
        self.scheduler = Scheduler(engine, scheduling, prompt_lookup, storage=storage)
        self.loop = EngineLoop(self.scheduler)
        self.loop.start()
        self.server = LiveServer(port=port)
        self.server.state.set_ready(
            served_model(
                Mailbox(self.loop),
                context_length=engine.capacity,
                loop_counts=self.loop.stats,
                alive=lambda: self.loop.healthy,
            )
        )
        self.url = self.server.url

    def close(self) -> None:
        self.engine.finish_all()
        self.server.server.stop()
        self.server.stop()
        assert self.loop.shutdown(drain=False, timeout=TIMEOUT_S)
        self.scheduler.check()


@contextmanager
def looping(
    engine: ScriptedEngine,
    max_queue_depth: int = 256,
    prompt_lookup: PromptLookup | None = None,
) -> Iterator[LiveLoop]:
    live = LiveLoop(engine, max_queue_depth, prompt_lookup=prompt_lookup)
    try:
        yield live
    finally:
        live.close()


def read_reply(connection: socket.socket) -> bytes:
    """Everything until the server closes; a reset ends it too."""
    received = bytearray()
    while True:
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            return bytes(received)
        if not data:
            return bytes(received)
        received += data


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])
