"""The server's two cost tables, following what steps take while it works.

What a round costs beside plain steps is not what was measured without clients
(`speculation.live_costs`). GOODPUT prices each round before it runs, so its prices follow; the
break-even rule's thresholds were measured with tables that stand still, and keep them.
"""

from __future__ import annotations

from dataclasses import replace

from surefoot.app.cost_tables import CostTables
from surefoot.speculation.live_costs import LiveCosts, LiveStep

STEPS_BETWEEN = 64
"""Steps from one refined table to the next: making one takes a hundred microseconds."""


class LiveTables:
    """Starts from `stated`."""

    def __init__(self, stated: CostTables) -> None:
        self._tables = stated
        self._origin = f"{stated.origin}, refined by the steps since"
        self._greedy, self._sampled = LiveCosts(stated.greedy), LiveCosts(stated.sampled)
        self._num_steps = 0

    def observe(self, step: LiveStep, sampled: bool) -> CostTables | None:
        """One more step, with a draw or without. The tables as things are now, every
        `STEPS_BETWEEN` steps if those said something new; None in between. A table that nothing
        changed stays the same object."""
        (self._sampled if sampled else self._greedy).observe(step)
        self._num_steps += 1
        if self._num_steps % STEPS_BETWEEN or not (self._greedy.changed or self._sampled.changed):
            return None
        tables = self._tables
        self._tables = replace(
            tables,
            greedy=self._greedy.costs() if self._greedy.changed else tables.greedy,
            sampled=self._sampled.costs() if self._sampled.changed else tables.sampled,
            origin=self._origin,
        )
        return self._tables
