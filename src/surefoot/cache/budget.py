"""How much KV memory may be in use: windows of running rows, and the pool beside them.

Everything is counted in blocks of `BLOCK_TOKENS` positions, so that both kinds add up in whole
numbers. A window's share is reserved when its row is admitted, whole, so that no row can run out
of memory halfway.
"""

from __future__ import annotations

from collections.abc import Collection

from surefoot.cache.block_pool import BLOCK_TOKENS


def window_blocks(num_tokens: int) -> int:
    """What a window of `num_tokens` positions may take: whole blocks, and one more for pages
    that hold a few positions of it only.

    >>> window_blocks(1), window_blocks(16), window_blocks(17)
    (2, 2, 3)
    """
    return -(-num_tokens // BLOCK_TOKENS) + 1


class KvBudget:
    """`total` blocks in all; None: no bound."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._reserved: dict[int, int] = {}

    @property
    def num_reserved(self) -> int:
        return sum(self._reserved.values())

    @property
    def row_ids(self) -> set[int]:
        """Rows with a reservation."""
        return set(self._reserved)

    def fits(self, num_blocks: int, without: Collection[int] = ()) -> bool:
        """Whether a window of `num_blocks` could be reserved, the pool emptied for it if need
        be, once the rows `without` have left."""
        leaving = sum(self._reserved.get(row_id, 0) for row_id in without)
        return self.total is None or self.num_reserved - leaving + num_blocks <= self.total

    def reserve(self, row_id: int, num_blocks: int) -> None:
        assert row_id not in self._reserved, row_id
        assert self.fits(num_blocks), (num_blocks, self.num_reserved, self.total)
        self._reserved[row_id] = num_blocks

    def free(self, row_id: int) -> None:
        del self._reserved[row_id]

    def excess(self, num_pooled: int) -> int:
        """How many blocks the pool must give up, of `num_pooled` it has, to be within bounds."""
        if self.total is None:
            return 0
        return max(0, self.num_reserved + num_pooled - self.total)

    def check(self, num_pooled: int) -> None:
        """Windows and pool are within the total."""
        assert not self.excess(num_pooled), (self._reserved, num_pooled, self.total)
