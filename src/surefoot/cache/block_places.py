"""In which windows a block's content lies, and whether its own memory has it too. Integers only.

A block is born in the window that computed it, and need not be copied out as long as it lies in
some window: a row that begins there finds it in place. Who copies, and when, is the prefix cache's
affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice


class BlockPlaces:
    """Blocks that were never put anywhere are not known."""

    def __init__(self) -> None:
        self._windows: dict[int, set[int]] = {}
        self._saved: set[int] = set()
        self._positions: dict[int, dict[int, int]] = {}
        self._unsaved: Counter[int] = Counter()

    def put(self, block: int, window: int, position: int) -> None:
        """The block's content is in `window`, from `position` on, as well."""
        assert block not in self._positions.get(window, ()), f"block {block} is in {window} already"
        self._windows.setdefault(block, set()).add(window)
        self._positions.setdefault(window, {})[block] = position
        self._unsaved[window] += block not in self._saved

    def is_in(self, block: int, window: int) -> bool:
        return window in self._windows.get(block, ())

    def window_of(self, block: int) -> int | None:
        """A window to copy a block from; None: its own memory."""
        assert block in self._windows, f"nobody knows where block {block} is"
        return None if block in self._saved else min(self._windows[block])

    def num_unsaved(self, window: int) -> int:
        """Blocks in the window whose own memory has them not."""
        return self._unsaved[window]

    def save(self, window: int, num_blocks: int) -> list[tuple[int, int]]:
        """The `(position, block)` of up to so many of these, which count as saved now."""
        if not self._unsaved[window]:
            return []
        here = self._positions.get(window, {})
        unsaved = ((p, b) for b, p in here.items() if b not in self._saved)
        chosen = list(islice(unsaved, num_blocks))
        for _, block in chosen:
            self._mark_saved(block)
        return chosen

    def last_copies(
        self, window: int, first: int = 0, staying: Collection[int] = ()
    ) -> list[tuple[int, int]]:
        """The `(position, block)` that would be lost if the positions from `first` on were
        overwritten, but for the blocks `staying`; in order of position."""
        return sorted(
            (position, block)
            for block, position in self._positions.get(window, {}).items()
            if position >= first
            and block not in staying
            and block not in self._saved
            and len(self._windows[block]) == 1
        )

    def leave(
        self, window: int, first: int = 0, staying: Collection[int] = ()
    ) -> list[tuple[int, int]]:
        """Those positions will be overwritten: what of them is to be saved before, and counts as
        saved now."""
        saved = self.last_copies(window, first, staying)
        for _, block in saved:
            self._mark_saved(block)
        here = self._positions.get(window, {})
        for block in [b for b, p in here.items() if p >= first and b not in staying]:
            self._unsaved[window] -= block not in self._saved
            del here[block]
            self._windows[block].remove(window)
        return saved

    def drop(self, block: int) -> bool:
        """The content is not needed any more, wherever it is. Whether the block's own memory has
        it."""
        saved = block in self._saved
        for window in self._windows.pop(block):
            self._unsaved[window] -= not saved
            del self._positions[window][block]
        self._saved.discard(block)
        return saved

    def _mark_saved(self, block: int) -> None:
        self._saved.add(block)
        self._unsaved.subtract(self._windows[block])

    def check(self, used: Collection[int]) -> None:
        """Exactly the blocks with content are somewhere, and both books agree."""
        assert self._windows.keys() == set(used), (self._windows, used)
        assert self._saved <= set(used), (self._saved, used)
        for block, windows in self._windows.items():
            assert windows or block in self._saved, f"block {block} is nowhere"
            held = {window for window, here in self._positions.items() if block in here}
            assert held == windows, (block, held, windows)
        for window, here in self._positions.items():
            unsaved = len(here.keys() - self._saved)
            assert self._unsaved[window] == unsaved, (window, self._unsaved, unsaved)
