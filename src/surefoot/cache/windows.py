"""Which row holds which KV window. Integers only; the bytes live in the engine."""

from __future__ import annotations

from collections.abc import Callable


class WindowLedger:
    """Windows `[0, num_windows)`, each free or held by one row."""

    def __init__(self, num_windows: int) -> None:
        assert num_windows >= 1, num_windows
        self.num_windows = num_windows
        self._free = set(range(num_windows))
        self._holder: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def free_windows(self) -> set[int]:
        return set(self._free)

    @property
    def held(self) -> dict[int, int]:
        """Window -> the row that holds it."""
        return dict(self._holder)

    def take(self, row_id: int, price: Callable[[int], int] = lambda window: 0) -> int:
        """The free window of the lowest price, of equals the lowest, now held by `row_id`. Low
        windows stay in use, so the rows of a batch lie close together. One must be free."""
        assert self._free, f"all {self.num_windows} windows are held: {self._holder}"
        window = min(self._free, key=lambda each: (price(each), each))
        self._free.remove(window)
        self._holder[window] = row_id
        return window

    def free(self, window: int, row_id: int) -> None:
        """`row_id` gives the window back."""
        holder = self._holder.pop(window, None)
        assert holder == row_id, f"row {row_id} frees window {window}, held by {holder}"
        self._free.add(window)

    def check(self) -> None:
        """free + held = all, and no window or row twice."""
        windows = sorted([*self._free, *self._holder])
        assert windows == list(range(self.num_windows)), (self._free, self._holder)
        rows = list(self._holder.values())
        assert len(set(rows)) == len(rows), self._holder
