"""The server's two cost tables, following what steps take while it works.

What a round costs beside plain steps is not what was measured without clients
(`speculation.live_costs`). GOODPUT prices each round before it runs, so its prices follow; the
break-even rule's thresholds were measured with tables that stand still, and keep them.
"""

from __future__ import annotations

from dataclasses import replace

from surefoot.cli.step_costs import CostTables
from surefoot.speculation.live_costs import LiveCosts, LiveStep

STEPS_BETWEEN = 64
"""Steps from one refined table to the next: making one takes a hundred microseconds."""


class LiveTables:
    """Starts from `stated`."""

    def __init__(self, stated: CostTables) -> None:
        self._stated = stated
        self._greedy, self._sampled = LiveCosts(stated.greedy), LiveCosts(stated.sampled)
        self._num_steps = 0

    def observe(self, step: LiveStep, sampled: bool) -> CostTables | None:
        """One more step, with a draw or without. The tables as things are now, every
        `STEPS_BETWEEN` steps; None in between."""
        (self._sampled if sampled else self._greedy).observe(step)
        self._num_steps += 1
        if self._num_steps % STEPS_BETWEEN:
            return None
        return replace(
            self._stated,
            greedy=self._greedy.costs(),
            sampled=self._sampled.costs(),
            origin=f"{self._stated.origin}, refined by the steps since",
        )
