"""How many synchronous plain ticks a drafted round drags behind it, counted live.

Owns one running mean. It must not know rows or time: it is told what kind each tick was.
"""

from __future__ import annotations

#: Drafted rounds that the starting value counts for, so that the first few rounds of a server do
#: not swing its prices.
PRIOR_ROUNDS = 8


class OverlapMeter:
    """The `s` of `CostBucket.round_costs`: mean synchronous plain ticks between a drafted round
    and the next prime or drafted round. Starts at `start` (`plain_rounds_before_pipeline`).

    Synchronous ticks after prefill are not counted: no round caused them.
    """

    def __init__(self, start: float) -> None:
        self._ticks = start * PRIOR_ROUNDS
        self._rounds = PRIOR_ROUNDS
        self._after_round = False

    @property
    def ticks_per_round(self) -> float:
        return self._ticks / self._rounds

    def drafted_round(self) -> None:
        """A verify round ran."""
        self._rounds += 1
        self._after_round = True

    def synchronous_tick(self) -> None:
        """A tick without a verify round was read before anything else was submitted."""
        if self._after_round:
            self._ticks += 1

    def primed(self) -> None:
        """A step was submitted ahead of reading the one in front of it, or the row ended."""
        self._after_round = False
