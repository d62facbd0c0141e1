"""Who waits, in what order. First come, first served; a preempted row goes before all others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from surefoot.scheduling.row import Row


class WaitingQueue:
    """Rows without a window."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def push(self, row: Row) -> None:
        assert row.window is None, row.row_id
        self._rows.append(row)

    def push_first(self, row: Row) -> None:
        """Back after preemption: it has waited before."""
        assert row.window is None, row.row_id
        self._rows.appendleft(row)

    def pop(self) -> Row:
        return self._rows.popleft()

    def remove(self, row_id: int) -> Row | None:
        """The row, taken out, or None if it does not wait."""
        for row in self._rows:
            if row.row_id == row_id:
                self._rows.remove(row)
                return row
        return None

    def clear(self) -> list[Row]:
        rows = list(self._rows)
        self._rows.clear()
        return rows
