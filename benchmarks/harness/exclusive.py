"""One benchmark at a time on a machine: a lock file that every script here takes first."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = Path(tempfile.gettempdir()) / "surefoot-benchmark.lock"


class OverlapError(Exception):
    """Another benchmark is running."""


@contextmanager
def exclusive(path: Path = LOCK_FILE) -> Iterator[None]:
    """Raises `OverlapError` at once if the lock is held. The kernel frees it when its holder ends,
    however that happens, so there is no stale lock."""
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise OverlapError(f"another benchmark runs here (process {holder})") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
