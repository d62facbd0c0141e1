"""A cost table that follows what steps really take while a server works.

Owns the recent times and the refined table. It must not know a clock: it is told seconds.

A busy machine does not slow every step alike: a verify forward that fills all cores suffers more
from a neighbour than a plain one. What is kept is how much longer than stated each kind of step
takes, as a median of the last few, so that one slow step says nothing; and it is clamped, so that
a stopped machine does not price every round out for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from surefoot.speculation.costs import CostBucket, StepCosts

#: Steps of one kind that are remembered, and how many make a median worth using.
REMEMBERED = 31
LEAST_STEPS = 9

#: How far a refined figure may be from the stated one: beyond it the machine is not the one that
#: was measured, and a new table is needed rather than a correction.
LEAST_FACTOR = 0.5
MOST_FACTOR = 3.0


class StepKind(Enum):
    """As `costs.CostBucket` names them."""

    PIPELINED = "pipelined"
    SYNCHRONOUS = "synchronous"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class LiveStep:
    """One step of one row: its kind, its fed tokens, the context before it, and its seconds from
    the token before it to its own, as a table's are."""

    kind: StepKind
    width: int
    context: int
    seconds: float


class LiveCosts:
    """`stated`, corrected by the steps it is told of.

    A width that was not seen lately is corrected as the nearest that was; without any, as
    synchronous plain steps are, which run the same way; a figure that nothing says anything about
    stays as stated.
    """

    def __init__(self, stated: StepCosts) -> None:
        self._stated = stated
        self._factors: dict[tuple[int | None, StepKind, int], deque[float]] = {}

    def observe(self, step: LiveStep) -> None:
        """One more step. Seconds that are not more than 0 are ignored."""
        if not 0.0 < step.seconds < float("inf"):
            return
        bucket = self._stated.bucket_for(step.context)
        width = step.width if step.kind is StepKind.VERIFY else 1
        key = (bucket.context, step.kind, width)
        times = self._factors.setdefault(key, deque(maxlen=REMEMBERED))
        times.append(step.seconds / _stated_seconds(bucket, step.kind, width))

    def costs(self) -> StepCosts:
        """The table as things are now."""
        return replace(self._stated, buckets=tuple(map(self._refined, self._stated.buckets)))

    def _refined(self, bucket: CostBucket) -> CostBucket:
        synchronous = self._factor(bucket, StepKind.SYNCHRONOUS, 1)
        seen = {
            width: factor
            for width in self._seen_widths(bucket)
            if (factor := self._factor(bucket, StepKind.VERIFY, width)) is not None
        }
        fallback = 1.0 if synchronous is None else synchronous
        verify = {}
        for width in sorted({*bucket.verify_s, *seen}):
            nearest = min(seen, key=lambda known: (abs(known - width), known), default=None)
            factor = fallback if nearest is None else seen[nearest]
            verify[width] = bucket.verify_seconds(width) * factor
        pipelined = self._factor(bucket, StepKind.PIPELINED, 1)
        return CostBucket(
            bucket.context,
            bucket.pipelined_s * (1.0 if pipelined is None else pipelined),
            bucket.synchronous_s * fallback,
            verify,
        )

    def _seen_widths(self, bucket: CostBucket) -> Iterable[int]:
        return [
            width
            for context, kind, width in self._factors
            if context == bucket.context and kind is StepKind.VERIFY
        ]

    def _factor(self, bucket: CostBucket, kind: StepKind, width: int) -> float | None:
        times = self._factors.get((bucket.context, kind, width), ())
        if len(times) < LEAST_STEPS:
            return None
        return max(LEAST_FACTOR, min(MOST_FACTOR, median(times)))


def _stated_seconds(bucket: CostBucket, kind: StepKind, width: int) -> float:
    if kind is StepKind.PIPELINED:
        return bucket.pipelined_s
    if kind is StepKind.SYNCHRONOUS:
        return bucket.synchronous_s
    return bucket.verify_seconds(width)
