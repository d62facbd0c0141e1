"""The folder of packed graphs: which are in use, which are leftovers, and how they go.

Owns the life of its sub-folders; knows nothing of what is in them. Whoever works with one holds it
by a shared lock on the folder itself, which ends with the process at the latest; whoever removes
one needs that lock alone. Where there are no such locks (Windows, some network file systems)
nothing is held; Windows lets no open file go either.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

BUILDING = ".building-"
"""What the names of folders begin with in which a graph is being made."""

LEFTOVER_AFTER_S = 24 * 3600.0
"""No graph takes that long to build: an older unfinished one was left behind. Where there are locks
one that nobody holds was, whatever its age."""


class Hold:
    """A folder that nobody removes before `release`, or the end of a `with` block."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def hold(folder: Path) -> Hold:
    """Waits while someone is removing it. Raises `FileNotFoundError` if it is not there then."""
    if sys.platform == "win32":
        folder.stat()
        return Hold(None)
    return Hold(_locked(folder, fcntl.LOCK_SH))


def remove_unless_held(folder: Path) -> bool:
    """Whether it is gone; False: someone holds it."""
    if sys.platform == "win32":
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    try:
        descriptor = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except BlockingIOError:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
    return not folder.exists()


def _locked(folder: Path, operation: int) -> int:
    """A descriptor of the folder, locked. Raises `BlockingIOError`, `FileNotFoundError`."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            _lock(descriptor, operation)
            # What was opened may have been removed, and another put in its place, before that.
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, operation: int) -> None:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


def writable(root: Path) -> Path:
    """`root`, made if it is not there. Where nothing may be written: a new folder among the
    system's temporary files, which goes with the program. Raises `OSError` if there can be none."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            return root
    except OSError as error:
        return temporary(error)


def temporary(error: OSError) -> Path:
    """A new folder among the system's temporary files, which goes with the program, because the
    cache failed so. Raises `OSError`."""
    reason = error.strerror or type(error).__name__
    logger.warning("the cache cannot be written (%s): the model is packed at each start", reason)
    scratch = Path(tempfile.mkdtemp(prefix="surefoot-graphs-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch


def sweep(root: Path, is_outdated: Callable[[Path], bool]) -> None:
    """Remove graphs that are outdated and builds that were left behind, unless held."""
    if not root.is_dir():
        return
    oldest = time.time() - (0.0 if _has_locks(root) else LEFTOVER_AFTER_S)
    for folder in _folders(root):
        if folder.name.startswith(BUILDING):
            dead = _modified(folder) <= oldest
        else:
            dead = is_outdated(folder)
        if dead:
            remove_unless_held(folder)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Bytes given back, and those of the graphs that were kept because they are in use."""

    freed: int
    num_kept: int
    kept: int


def clear(root: Path) -> Cleared:
    """Remove every graph and every unfinished one, unless held."""
    freed = kept = num_kept = 0
    for folder in _folders(root):
        size = _size(folder)
        if remove_unless_held(folder):
            freed += size
        else:
            kept += size
            num_kept += 1
    if root.is_dir() and not any(root.iterdir()):
        root.rmdir()
    return Cleared(freed, num_kept, kept)


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _has_locks(folder: Path) -> bool:
    """Whether this file system has them."""
    if sys.platform == "win32":
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _size(folder: Path) -> int:
    try:
        return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
    except FileNotFoundError:  # someone else removes it
        return 0


def _modified(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # someone else removed it
        return time.time()
