"""The bytes of the KV windows: mapped, never touched before a token is written.

A window is one row's keys and values over all layers, `[1, kv_heads, capacity, head_dim]` each.
Capacity is address space; a page costs memory when a position in it is first written. numpy's own
allocation asks for huge pages above 4 MB, and one token would commit 240 MB over sixty
8,192-token arrays (0.7 MB this way, measured); hence `mmap` and MADV_NOHUGEPAGE.
"""

from __future__ import annotations

import mmap

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from surefoot.graph.spec import ModelSpec


class KvMemory:
    """`num_windows` windows of `capacity` positions, as ONNX Runtime values to bind."""

    def __init__(self, spec: ModelSpec, num_windows: int, capacity: int) -> None:
        self.capacity = capacity
        shape = (2 * spec.num_layers, spec.num_kv_heads, capacity, spec.head_dim)
        self._maps = [map_floats(int(np.prod(shape))) for _ in range(num_windows)]
        self._arrays = [floats(buffer).reshape(shape) for buffer in self._maps]
        self._values = [
            [ort.OrtValue.ortvalue_from_numpy(part[np.newaxis]) for part in array]
            for array in self._arrays
        ]

    def values(self, window: int) -> list[ort.OrtValue]:
        """Keys and values of layer 0, of layer 1, ...: the same buffers at every call."""
        return self._values[window]

    def array(self, window: int) -> NDArray[np.float32]:
        """The window's memory, `[2 * layers, kv_heads, capacity, head_dim]`."""
        return self._arrays[window]

    def fill(self, window: int, length: int) -> None:
        """Write noise into the first `length` positions: what attention over a context of that
        length costs can then be measured without reading a prompt first. (Untouched pages would
        all be the one zero page, which no cache misses.)"""
        array = self._arrays[window]
        noise = np.random.default_rng(0).standard_normal(array.shape[3], dtype=np.float32)
        array[:, :, :length] = noise

    def release(self, window: int, first: int = 0) -> None:
        """Give back the pages that hold positions from `first` on alone; they read as zeros until
        written again."""
        buffer, array = self._maps[window], self._arrays[window]
        if not first:
            give_back(buffer, 0, len(buffer))
            return
        run, kept = array[0, 0].nbytes, array[0, 0, :first].nbytes
        for start in range(0, array.nbytes, run):
            begin = -(-(start + kept) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (start + run) // mmap.PAGESIZE * mmap.PAGESIZE
            if begin < end:
                give_back(buffer, begin, end - begin)


def map_floats(count: int, dense: bool = False) -> mmap.mmap:
    """Private memory for `count` float32, in pages of the usual size. `dense`: it is written from
    its beginning on, and may be had in huge pages."""
    num_bytes = 4 * count
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, num_bytes)
    buffer = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE if dense else mmap.MADV_NOHUGEPAGE)
    return buffer


def floats(buffer: mmap.mmap) -> NDArray[np.float32]:
    return np.frombuffer(buffer, dtype=np.float32)


def give_back(buffer: mmap.mmap, start: int, num_bytes: int) -> None:
    """The pages of `[start, start + num_bytes)`, `start` at a page's begin, go back to the system
    where it has a call for that."""
    if hasattr(mmap, "MADV_DONTNEED"):
        buffer.madvise(mmap.MADV_DONTNEED, start, num_bytes)
