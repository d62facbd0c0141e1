"""The bytes of the block pool: sealed KV positions, copied out of windows and into others.

Knows blocks by number and nothing of what they hold; `cache` keeps the books. A block is one run
`[2 * layers, kv_heads, BLOCK_TOKENS, head_dim]`, so that a copy between it and a window moves
`BLOCK_TOKENS * head_dim` floats at a time, for all layers in one call.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.engine.kv_memory import floats, give_back, map_floats
from surefoot.graph.spec import ModelSpec

_FLOATS_PER_PAGE = mmap.PAGESIZE // 4


class BlockMemory:
    """`num_blocks` blocks. Memory is committed when a block is first stored; each begins at a
    page, so that it can be given back alone. Low blocks are used first, so huge pages waste little:
    in them a block of the default model is stored for the first time in 0.14 ms, in small ones in
    0.5 (two cores of a virtual machine; 0.07 where it was stored before)."""

    def __init__(self, spec: ModelSpec, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._shape = (2 * spec.num_layers, spec.num_kv_heads, BLOCK_TOKENS, spec.head_dim)
        self._size = int(np.prod(self._shape))
        self._stride = -(-self._size // _FLOATS_PER_PAGE) * _FLOATS_PER_PAGE
        # A map of no bytes is refused.
        self._map = map_floats(max(1, num_blocks * self._stride), dense=True)
        self._floats = floats(self._map)

    def store(self, window: NDArray[np.float32], position: int, block: int) -> None:
        """Copy positions `[position, position + BLOCK_TOKENS)` of a window's array into `block`."""
        self._block(block)[:] = window[:, :, position : position + BLOCK_TOKENS]

    def load(self, window: NDArray[np.float32], position: int, block: int) -> None:
        """Copy `block` to the positions from `position` on of a window's array."""
        window[:, :, position : position + BLOCK_TOKENS] = self._block(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Give the blocks' pages back."""
        for block in blocks:
            give_back(self._map, 4 * block * self._stride, 4 * self._stride)

    def _block(self, block: int) -> NDArray[np.float32]:
        first = block * self._stride
        return self._floats[first : first + self._size].reshape(self._shape)
