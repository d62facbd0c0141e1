"""Who waits, who runs, and who has left and still has a window.

Owns the membership of rows and nothing of steps: it is told when no step is in flight.
"""

from __future__ import annotations

from collections.abc import Callable

from surefoot.config import SchedulerConfig
from surefoot.core.request import Request
from surefoot.errors import QueueFullError
from surefoot.scheduling import invariants
from surefoot.scheduling.admission import WaitingQueue, rows_to_set_aside
from surefoot.scheduling.forwards import InFlight
from surefoot.scheduling.lookahead import Departures
from surefoot.scheduling.row import Row
from surefoot.scheduling.storage import RowStorage


class Roster:
    """`running` holds the rows with a window by id, longest in first. `clock` gives seconds."""

    def __init__(
        self, config: SchedulerConfig, storage: RowStorage, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._clock = clock
        self.storage = storage
        self.running: dict[int, Row] = {}
        self.waiting = WaitingQueue()
        self.departures = Departures(storage)

    @property
    def max_open(self) -> int:
        """Requests that may run and wait at once."""
        return self._config.max_rows + self._config.max_queue_depth

    @property
    def joiner_waits(self) -> bool:
        """Somebody can join now, perhaps in another row's place."""
        head = self.waiting.head
        return head is not None and self._making_way_for(head) is not None

    def enter(self, request: Request) -> None:
        """Queue a request. Raises `QueueFullError`."""
        if len(self.running) + len(self.waiting) >= self.max_open:
            raise QueueFullError(
                f"{len(self.running) + len(self.waiting)} requests run or wait; the limit is"
                f" {self.max_open}; try again later"
            )
        known = {*self.running, *(row.row_id for row in self.waiting)}
        assert request.request_id not in known, request.request_id
        row = Row(request)
        row.clock.queued = self._clock()
        self.waiting.push(row)

    def admit(self, stored: InFlight | None) -> None:
        """Let in everybody who can join now, others set aside for them if need be (I6)."""
        invariants.i6_no_lookahead(stored, "admission")
        while self.joiner_waits:
            row = self.waiting.pop()
            for each in self._making_way_for(row) or ():
                self.set_aside(each, stored)
            # Running before anything can fail: `clear` must find it.
            self.running[row.row_id] = row
            self.storage.admit(row, self.waiting)
            if row.clock.admitted is None:
                row.clock.admitted = self._clock()

    def set_aside(self, row: Row, stored: InFlight | None) -> None:
        """A running row gives up its window and waits again, before others of its priority."""
        invariants.i6_no_lookahead(stored, "preemption")
        del self.running[row.row_id]
        self.departures.free(row, stored)
        row.set_aside()
        self.waiting.push_first(row)

    def withdraw(self, row_id: int) -> Row | None:
        """A waiting row, which will not run (again); None if no such row waits."""
        row = self.waiting.remove(row_id)
        if row is not None:
            self.storage.forget(row)
        return row

    def withdraw_overdue(self) -> list[Row]:
        """Rows that never ran and have waited longer than the limit, if there is one."""
        limit = self._config.queue_timeout_s
        if not limit or not self.waiting.head:
            return []
        return self.waiting.remove_overdue(self._clock() - limit)

    def leave(self, row: Row, failed: bool = False) -> None:
        """A running row ended, or failed. Its window is free once no step in flight names it."""
        del self.running[row.row_id]
        self.storage.forget(row, failed)
        self.departures.add(row)

    def clear(self) -> list[Row]:
        """After a broken tick: everybody is out and every window free. Returns who was open."""
        rows = [*self.running.values(), *self.waiting.clear()]
        self.running.clear()
        self.storage.clear()
        self.departures = Departures(self.storage)
        return rows

    def _making_way_for(self, row: Row) -> list[Row] | None:
        config, running = self._config, list(self.running.values())
        return rows_to_set_aside(row, running, config.max_rows, self.storage, config.preemption)
