"""How much KV memory may be in use: windows, and the pool beside them.

Everything is counted in blocks of `BLOCK_TOKENS` positions, so that both kinds add up in whole
numbers. A window's share is reserved when its row is admitted, whole, so that no row can run out
of memory halfway. *Warm*: a free window whose pages were not given back, since the next row in
it would have to have them zeroed and mapped again.
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
        self._warm: dict[int, int] = {}
        self._found: dict[int, int] = {}

    @property
    def reserved(self) -> dict[int, int]:
        """Window -> blocks, of the windows that rows hold."""
        return dict(self._reserved)

    @property
    def warm(self) -> dict[int, int]:
        """Window -> blocks, of the free windows that still have pages."""
        return dict(self._warm)

    def fits(self, num_blocks: int, without: Collection[int] = ()) -> bool:
        """Whether `num_blocks` more could be reserved, pool and warm windows emptied for it if
        need be, once the windows `without` are free."""
        if self.total is None:
            return True
        staying = sum(size for window, size in self._reserved.items() if window not in without)
        return staying + num_blocks <= self.total

    def reserve(self, window: int, num_blocks: int) -> bool:
        """The window's row may take `num_blocks`. True: it has more pages than that, left warm;
        they must be given back."""
        assert window not in self._reserved, (window, self._reserved)
        assert self.fits(num_blocks), (num_blocks, self._reserved, self.total)
        self._reserved[window] = num_blocks
        warm = self._warm.pop(window, 0)
        self._found[window] = min(warm, num_blocks)
        return warm > num_blocks

    def free(self, window: int) -> None:
        """The row left, and the window's pages are given back."""
        del self._reserved[window], self._found[window]

    def keep(self, window: int, num_touched: int) -> None:
        """The row left; the pages of the `num_touched` blocks that it wrote stay, and those that
        it found there."""
        num_warm = max(self._found.pop(window), num_touched)
        self._warm[window] = min(num_warm, self._reserved.pop(window))

    def cool(self) -> int | None:
        """The warm window with the most pages, which must be given back now; None: none is."""
        if not self._warm:
            return None
        window = max(self._warm, key=lambda each: self._warm[each])
        del self._warm[window]
        return window

    def excess(self, num_pooled: int) -> int:
        """By how much windows and a pool of `num_pooled` blocks are beyond the total."""
        if self.total is None:
            return 0
        in_windows = sum(self._reserved.values()) + sum(self._warm.values())
        return max(0, in_windows + num_pooled - self.total)

    def check(self, num_pooled: int) -> None:
        """Windows and pool are within the total, and no window is warm and held."""
        assert not self._reserved.keys() & self._warm.keys(), (self._reserved, self._warm)
        assert self._found.keys() == self._reserved.keys(), (self._found, self._reserved)
        assert not self.excess(num_pooled), (self._reserved, self._warm, num_pooled, self.total)
