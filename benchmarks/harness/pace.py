"""A reply against its own plain steps: what speculation gave and cost, at any machine's speed.

A shared machine is faster or slower by ten percent from one request to the next, and hardly from
one step to the next. So each step's time is counted in plain steps of the moment: the median of
those of the same reply around it that no verify round can have touched. What makes every plain step
of a server slower is not seen here; the median plain step, which is shown too, would show it.
Needs the times of single tokens (`timings_per_token`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from harness.comparison import Rate
from harness.sse import Reply, Step

AROUND = 40
"""Steps before and after that are looked at: about a second."""
AFTER_ROUND = 3
"""Steps from a round on that it may have touched: its own, and those until steps overlap again."""
LEAST = 15
"""Untouched steps that make a median worth using."""


@dataclass(frozen=True, slots=True)
class _Gap:
    tokens: int
    seconds: float
    rounds: int

    @property
    def per_token_s(self) -> float:
        return self.seconds / self.tokens


def paced_rate(reply: Reply) -> Rate | None:
    """Tokens, and the plain steps that they took as "seconds". None for a reply that tells no
    times of single tokens or has too few untouched plain steps."""
    gaps = _gaps(reply.steps)
    untouched = _untouched(gaps)
    if len(untouched) < LEAST:
        return None
    taken = sum(gap.seconds / _pace(untouched, index) for index, gap in enumerate(gaps))
    return Rate(sum(gap.tokens for gap in gaps), taken)


def plain_step_s(reply: Reply) -> float | None:
    """The median untouched plain step."""
    untouched = _untouched(_gaps(reply.steps))
    return median(untouched.values()) if len(untouched) >= LEAST else None


def _gaps(steps: Sequence[Step]) -> list[_Gap]:
    """Between successive pieces of text; times that are no more than 0 are left out."""
    gaps = [
        _Gap(
            after.tokens - before.tokens,
            after.seconds - before.seconds,
            after.rounds - before.rounds,
        )
        for before, after in pairwise(steps)
    ]
    return [gap for gap in gaps if gap.tokens > 0 and gap.seconds > 0.0]


def _untouched(gaps: Sequence[_Gap]) -> dict[int, float]:
    """Seconds per token of steps away from rounds, by place."""
    touched = {
        index + offset
        for index, gap in enumerate(gaps)
        if gap.rounds
        for offset in range(-1, AFTER_ROUND)
    }
    return {i: gap.per_token_s for i, gap in enumerate(gaps) if i not in touched}


def _pace(untouched: dict[int, float], index: int) -> float:
    near = [s for place, s in untouched.items() if abs(place - index) <= AROUND]
    return median(near if len(near) >= LEAST else untouched.values())
