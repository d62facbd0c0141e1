"""Which KV blocks are free, held or kept. Integers only; the bytes live in the engine.

A block is `BLOCK_TOKENS` consecutive positions of some sequence, never written again once it is
filled. *Held*: some row counts on it. *Kept*: nobody does, and it may be had again until its
room is needed.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

BLOCK_TOKENS = 16
"""Positions of one block: 16 is the grain at which prompts share their beginnings."""


class BlockPool:
    """Blocks `[0, num_blocks)`. Kept blocks are evicted oldest release first."""

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 0, num_blocks
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))  # a heap: low blocks stay in use
        self._holders: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_held(self) -> int:
        return len(self._holders)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @property
    def num_used(self) -> int:
        """Blocks with content: held or kept."""
        return len(self._holders) + len(self._kept)

    @property
    def used(self) -> set[int]:
        return {*self._holders, *self._kept}

    def num_holders(self, block: int) -> int:
        return self._holders.get(block, 0)

    def take(self) -> int:
        """The lowest free block, now held once. One must be free."""
        assert self._free, f"none of {self.num_blocks} blocks is free"
        block = heapq.heappop(self._free)
        self._holders[block] = 1
        return block

    def hold(self, block: int) -> None:
        """One more holder of a block with content."""
        held = block in self._holders
        assert held or block in self._kept, f"block {block} has no content"
        if not held:
            del self._kept[block]
        self._holders[block] = self._holders.get(block, 0) + 1

    def release(self, block: int) -> None:
        """One holder less; the last one makes it the newest kept block."""
        assert block in self._holders, f"block {block} is not held"
        self._holders[block] -= 1
        if not self._holders[block]:
            del self._holders[block]
            self._kept[block] = None

    def evict(self) -> int | None:
        """Free the oldest kept block; None if none is kept."""
        if not self._kept:
            return None
        block, _ = self._kept.popitem(last=False)
        heapq.heappush(self._free, block)
        return block

    def reuse(self) -> int | None:
        """Evict the oldest kept block and hold it at once, for other content: the memory in use
        stays what it was. None if none is kept."""
        if not self._kept:
            return None
        block, _ = self._kept.popitem(last=False)
        self._holders[block] = 1
        return block

    def check(self) -> None:
        """free + held + kept = all, no block twice, no holder count below 1."""
        blocks = sorted([*self._free, *self._holders, *self._kept])
        assert blocks == list(range(self.num_blocks)), (self._free, self._holders, self._kept)
        assert all(count >= 1 for count in self._holders.values()), self._holders
