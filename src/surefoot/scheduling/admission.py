"""Who waits, in what order, and who makes room. Higher priority first, then first come, first
served; a row set aside goes before all others of its priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surefoot.scheduling.row import Row
from surefoot.scheduling.storage import RowStorage


class WaitingQueue:
    """Rows without a window."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __contains__(self, row: object) -> bool:
        return row in self._rows

    @property
    def head(self) -> Row | None:
        """Whoever is next."""
        return self._rows[0] if self._rows else None

    def push(self, row: Row) -> None:
        """Behind everybody of the same priority."""
        assert row.window is None, row.row_id
        ahead = sum(1 for each in self._rows if each.priority >= row.priority)
        self._rows.insert(ahead, row)

    def push_first(self, row: Row) -> None:
        """Back after preemption: it has waited before."""
        assert row.window is None, row.row_id
        ahead = sum(1 for each in self._rows if each.priority > row.priority)
        self._rows.insert(ahead, row)

    def pop(self) -> Row:
        return self._rows.pop(0)

    def remove(self, row_id: int) -> Row | None:
        """The row, taken out, or None if it does not wait."""
        for row in self._rows:
            if row.row_id == row_id:
                self._rows.remove(row)
                return row
        return None

    def remove_overdue(self, queued_before: float) -> list[Row]:
        """Rows that came before this time and never ran, taken out."""
        overdue = [
            row
            for row in self._rows
            if row.clock.admitted is None and row.clock.queued < queued_before
        ]
        self._rows = [row for row in self._rows if row not in overdue]
        return overdue

    def clear(self) -> list[Row]:
        rows = list(self._rows)
        self._rows.clear()
        return rows


def rows_to_set_aside(
    row: Row, running: Sequence[Row], max_rows: int, storage: RowStorage, preemption: bool
) -> list[Row] | None:
    """Which running rows (oldest first) make way for the waiting `row`: as few as its place and
    its memory take, only ones of lower priority, the lowest first and of those the youngest.
    Empty: there is room. None: it has to wait."""
    candidates = [
        each
        for each in reversed(running)
        if preemption and each.priority < row.priority and not each.cancelled
    ]
    candidates.sort(key=lambda each: each.priority)
    leaving: list[Row] = []
    while len(running) - len(leaving) >= max_rows or not storage.fits(row, leaving):
        if not candidates:
            return None
        leaving.append(candidates.pop(0))
    return leaving
