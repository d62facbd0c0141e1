"""Server processes that a benchmark starts, watches and ends; nobody else's."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.client import Endpoint

START_TIMEOUT_S = 600.0
"""A first start packs the model's graph, and may fetch the model."""
STOP_TIMEOUT_S = 20.0


class ServerProcess:
    """Started on construction, on a free port of the loopback; `command` holds `{port}` where the
    port goes. Ends with the `with` block. Its output is kept in `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        port = free_port()
        self.command = [part.replace("{port}", str(port)) for part in command]
        self.endpoint = Endpoint(f"http://127.0.0.1:{port}")
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._log.close()

    def stop(self) -> int:
        """End it, gently at first; its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Raises `NotReadyError`."""
        self.endpoint.wait_ready(timeout_s, self.alive)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def shown_command(command: Sequence[str]) -> str:
    """The command without the folders of this machine, for reports."""
    return shlex.join(os.path.basename(part) if os.sep in part else part for part in command)


def without_folders(settings: Any) -> Any:
    """A server's settings with every absolute path cut to its last name."""
    if isinstance(settings, dict):
        return {name: without_folders(value) for name, value in settings.items()}
    if isinstance(settings, list):
        return [without_folders(value) for value in settings]
    if isinstance(settings, str) and os.path.isabs(settings) and "\n" not in settings:
        return os.path.basename(settings)
    return settings
