"""Pages of mapped files that loading touched and no step needs.

When a session is made ONNX Runtime reads all that it maps; of the default model's 167 MiB the
steps use three quarters. What is given back is not lost: a step that needs a page maps it again
from the page cache, with its neighbours.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

SMAPS = Path("/proc/self/smaps")


def give_back_mapped(directory: Path) -> int:
    """Give back the pages of all files below `directory` that this process maps and has not
    written to. Returns their bytes; 0 where the system has no way to do it."""
    if not sys.platform.startswith("linux") or not SMAPS.exists():
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    given = 0
    for start, end, resident in _unwritten(SMAPS.read_text(), f"{directory.resolve()}{os.sep}"):
        if resident and madvise(start, end - start, mmap.MADV_DONTNEED) == 0:
            given += resident
    return given


def _unwritten(smaps: str, prefix: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and resident bytes of each mapping of a file below `prefix` that has no page of
    its own: one that was written to would be read from the file again, without what was written.

    >>> text = '''7f00-7f10 rw-p 00000000 fe:00 9    /cache/a/packed.bin
    ... Rss:                  64 kB
    ... Anonymous:             0 kB
    ... 8f00-8f10 rw-p 00000000 fe:00 9    /cache/a/packed.bin
    ... Rss:                  64 kB
    ... Anonymous:             4 kB
    ... 9f00-9f10 rw-p 00000000 00:00 0
    ... Rss:                  64 kB
    ... Anonymous:             0 kB
    ... '''
    >>> list(_unwritten(text, "/cache/"))
    [(32512, 32528, 65536)]
    """
    bounds: tuple[int, int] | None = None
    resident = 0
    for line in smaps.splitlines():
        fields = line.split(maxsplit=5)
        if fields[0][-1] != ":":
            low, high = fields[0].split("-")
            below = len(fields) == 6 and fields[5].startswith(prefix)
            bounds = (int(low, 16), int(high, 16)) if below else None
        elif bounds is None:
            continue
        elif fields[0] == "Rss:":
            resident = 1024 * int(fields[1])
        elif fields[0] == "Anonymous:" and int(fields[1]) == 0:
            yield *bounds, resident
