"""`surefoot serve` as a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_S = 120.0


class ServeProcess:
    """A started server: `url` is known as soon as it listens. Its stderr is always being read,
    since a server that cannot log stands still."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = self.wait_for(r"on (http://\S+), loading")

    def wait_for(self, pattern: str) -> str:
        """Wait until a line of stderr matches; its first group."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(pattern), TIMEOUT_S)
        found = self._find(pattern)
        assert found is not None, f"no line like {pattern!r} in {self.log}"
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _find(self, pattern: str) -> str | None:
        return next((found[1] for line in self.log if (found := re.search(pattern, line))), None)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def get(self, path: str) -> tuple[int, dict[str, object]]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@contextmanager
def served(*arguments: str, home: Path) -> Iterator[ServeProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", "surefoot", "serve", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SUREFOOT_HOME": str(home)},
    )
    server = ServeProcess(process)
    try:
        yield server
    finally:
        server.close()
