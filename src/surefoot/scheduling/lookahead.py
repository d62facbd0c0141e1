"""The step in flight whose tokens the scheduler has not read, and the windows it keeps busy."""

from __future__ import annotations

from surefoot.scheduling import invariants
from surefoot.scheduling.forwards import InFlight
from surefoot.scheduling.row import Row
from surefoot.scheduling.storage import RowStorage


class Lookahead:
    """Holds at most one step. While it is stored, every row in it has exactly one uncommitted
    position (I2)."""

    def __init__(self) -> None:
        self.stored: InFlight | None = None

    def store(self, flight: InFlight) -> None:
        assert self.stored is None, (self.stored, flight)
        assert all(row.num_fed == 1 for row in flight.plan.rows), flight.plan
        self.stored = flight

    def take(self) -> InFlight:
        """The stored step, to be read: nothing is stored any more."""
        flight, self.stored = self.stored, None
        assert flight is not None, "no lookahead is stored"
        return flight


class Departures:
    """Rows that ended and whose windows are not free yet: a step in flight may still write them.

    The engine runs steps and releases in submission order, so a window could be handed on at
    once; waiting until the step is read keeps the ledger's rule simple: a window that a step in
    flight names has a holder.
    """

    def __init__(self, storage: RowStorage) -> None:
        self._storage = storage
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def free_idle(self, stored: InFlight | None) -> None:
        """Give back every window that the step in flight does not name."""
        busy: list[Row] = []
        for row in self.rows:
            assert row.window is not None, row.row_id
            if stored is not None and stored.names_window(row.window):
                busy.append(row)
            else:
                self.free(row, stored)
        self.rows = busy

    def free(self, row: Row, stored: InFlight | None) -> None:
        """The row's window goes back to the ledger."""
        assert row.window is not None, row.row_id
        invariants.i6_window_idle(row.window, stored)
        self._storage.free(row)
