"""Files of a cached graph: written whole or not at all, and known again by what is in them.

A file that changed under us would not fail, it would make another model of it: so its digest is
kept. Reading a large one takes longer than opening it, which is why that is only done when its time
has changed since it was written; bits that a disk turns by itself are not found out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

SMALL_BYTES = 4 << 20
"""Up to here a file is read whenever it is asked about: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class FileMark:
    """What a file was when it was written: bytes, nanoseconds, digest."""

    size: int
    time_ns: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> FileMark:
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, digest_of(path))

    def fits(self, path: Path) -> bool:
        """Raises `OSError` for a file that is not there."""
        stat = path.stat()
        if stat.st_size != self.size:
            return False
        if stat.st_mtime_ns == self.time_ns and self.size > SMALL_BYTES:
            return True
        return digest_of(path) == self.digest


def digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Under its name at once, or not at all. Raises `OSError`."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
