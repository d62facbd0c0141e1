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

from surefoot.graph.spec import ModelSpec


class KvMemory:
    """`num_windows` windows of `capacity` positions, as ONNX Runtime values to bind."""

    def __init__(self, spec: ModelSpec, num_windows: int, capacity: int) -> None:
        self.capacity = capacity
        self._shape = (1, spec.num_kv_heads, capacity, spec.head_dim)
        self._num_arrays = 2 * spec.num_layers
        self._maps: list[list[mmap.mmap]] = []
        self._values: list[list[ort.OrtValue]] = []
        for _ in range(num_windows):
            maps = [_map(4 * int(np.prod(self._shape))) for _ in range(self._num_arrays)]
            self._maps.append(maps)
            self._values.append([self._value(buffer) for buffer in maps])

    def _value(self, buffer: mmap.mmap) -> ort.OrtValue:
        array = np.frombuffer(buffer, dtype=np.float32).reshape(self._shape)
        return ort.OrtValue.ortvalue_from_numpy(array)

    def values(self, window: int) -> list[ort.OrtValue]:
        """Keys and values of layer 0, of layer 1, ...: the same buffers at every call."""
        return self._values[window]

    def fill(self, window: int, length: int) -> None:
        """Write noise into the first `length` positions: what attention over a context of that
        length costs can then be measured without reading a prompt first. (Untouched pages would
        all be the one zero page, which no cache misses.)"""
        noise = np.random.default_rng(0).standard_normal(self._shape[3], dtype=np.float32)
        for buffer in self._maps[window]:
            array = np.frombuffer(buffer, dtype=np.float32).reshape(self._shape)
            array[:, :, :length] = noise

    def release(self, window: int) -> None:
        """Give the window's pages back; it reads as zeros until written again."""
        for buffer in self._maps[window]:
            if hasattr(mmap, "MADV_DONTNEED"):
                buffer.madvise(mmap.MADV_DONTNEED)


def _map(num_bytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, num_bytes)
    buffer = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return buffer
