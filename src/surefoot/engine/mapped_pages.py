"""Pages of mapped files that loading touched and no step needs.

When a session is made ONNX Runtime reads all that it maps; of the default model's 167 MiB the
steps use three quarters. What is given back is not lost: a step that needs a page maps it again
from the page cache, with its neighbours.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SMAPS = Path("/proc/self/smaps")

_MAPPING = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)")
_COUNT = re.compile(rb"(Rss|Anonymous): +(\d+) kB")


def give_back_mapped(directory: Path) -> int:
    """Give back the pages of all files below `directory` that this process maps and has not
    written to. Returns their bytes; 0 where the system has no way to do it."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        smaps = SMAPS.read_bytes()
    except OSError:
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    given = 0
    for start, end, resident in _unwritten(smaps, os.fsencode(directory.resolve()) + b"/"):
        if resident and madvise(start, end - start, mmap.MADV_DONTNEED) == 0:
            given += resident
    return given


def _unwritten(smaps: bytes, prefix: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, end and resident bytes of each mapping of a file below `prefix` that has no page of
    its own: one that was written to would be read from the file again, without what was written.
    The kernel writes paths as they are, but for a line's end in one, which is not looked for.

    >>> text = b'''7f00-7f10 rw-p 00000000 fe:00 9    /cache/a b/packed.bin
    ... Rss:                  64 kB
    ... Anonymous:             0 kB
    ... 8f00-8f10 rw-p 00000000 fe:00 9    /cache/a b/packed.bin
    ... Rss:                  64 kB
    ... Anonymous:             4 kB
    ... 9f00-9f10 rw-p 00000000 00:00 0
    ... Rss:                  64 kB
    ... Anonymous:             0 kB
    ... '''
    >>> list(_unwritten(text, b"/cache/"))
    [(32512, 32528, 65536)]
    """
    bounds: tuple[int, int] | None = None
    resident = 0
    for line in smaps.split(b"\n"):
        mapping = _MAPPING.fullmatch(line)
        if mapping is not None:
            below = mapping[3].startswith(prefix)
            bounds = (int(mapping[1], 16), int(mapping[2], 16)) if below else None
        elif bounds is not None and (count := _COUNT.fullmatch(line)) is not None:
            if count[1] == b"Rss":
                resident = 1024 * int(count[2])
            elif int(count[2]) == 0:
                yield *bounds, resident
