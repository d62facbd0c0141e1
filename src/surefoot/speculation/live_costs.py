"""A cost table that follows what steps really take while a server works.

Owns the recent times and the refined table. It must not know a clock: it is told seconds.

Prices are compared, so what counts is what a step costs beside plain ones of the same moment: a
machine that is slow for a minute slows all of them, and a server that writes to its clients between
synchronous steps makes those alone dearer. So each step is held against the pipelined ones just
before it. Of that ratio a median of the last few is kept, so that one slow step says nothing; and
it is clamped, so that a stopped machine does not price every round out for good.
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

#: Pipelined steps that a step is held against, and how many others may have come since the last.
PACE_STEPS = 15
FRESH_STEPS = 16

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
    """`stated`, corrected by the steps it is told of, in units of its pipelined steps, which stay
    as they are.

    A width that was not seen lately costs as much more than stated as the nearest that was (what
    lies around a forward does not grow with it); without any, as synchronous plain steps do, which
    run the same way; a figure that nothing says anything about stays as stated.
    """

    def __init__(self, stated: StepCosts) -> None:
        self._stated = stated
        self._factors: dict[tuple[int | None, StepKind, int], deque[float]] = {}
        self._pace: deque[float] = deque(maxlen=PACE_STEPS)
        self._num_unpaced = 0
        self._changed = False

    @property
    def changed(self) -> bool:
        """Something was seen that the last `costs` did not know."""
        return self._changed

    def observe(self, step: LiveStep) -> None:
        """One more step. Seconds that are not more than 0 are ignored."""
        if not 0.0 < step.seconds < float("inf"):
            return
        bucket = self._stated.bucket_for(step.context)
        width = step.width if step.kind is StepKind.VERIFY else 1
        factor = step.seconds / _stated_seconds(bucket, step.kind, width)
        if step.kind is StepKind.PIPELINED:
            self._pace.append(factor)
            self._num_unpaced = 0
            return
        self._num_unpaced += 1
        if len(self._pace) < LEAST_STEPS or self._num_unpaced > FRESH_STEPS:
            return
        key = (bucket.context, step.kind, width)
        times = self._factors.setdefault(key, deque(maxlen=REMEMBERED))
        times.append(factor / median(self._pace))
        self._changed = True

    def costs(self) -> StepCosts:
        """The table as things are now."""
        self._changed = False
        return replace(self._stated, buckets=tuple(map(self._refined, self._stated.buckets)))

    def _refined(self, bucket: CostBucket) -> CostBucket:
        synchronous = self._more(bucket, StepKind.SYNCHRONOUS, 1)
        seen = {
            width: more
            for width in self._seen_widths(bucket)
            if (more := self._more(bucket, StepKind.VERIFY, width)) is not None
        }
        verify = {}
        for width in sorted({*bucket.verify_s, *seen}):
            nearest = min(seen, key=lambda known: (abs(known - width), known), default=None)
            more = synchronous if nearest is None else seen[nearest]
            verify[width] = _clamped(bucket.verify_seconds(width), more)
        plain_s = _clamped(bucket.synchronous_s, synchronous)
        return CostBucket(bucket.context, bucket.pipelined_s, plain_s, verify)

    def _seen_widths(self, bucket: CostBucket) -> Iterable[int]:
        return [
            width
            for context, kind, width in self._factors
            if context == bucket.context and kind is StepKind.VERIFY
        ]

    def _more(self, bucket: CostBucket, kind: StepKind, width: int) -> float | None:
        """Seconds beyond the stated ones, at the stated pace."""
        times = self._factors.get((bucket.context, kind, width), ())
        if len(times) < LEAST_STEPS:
            return None
        return (median(times) - 1.0) * _stated_seconds(bucket, kind, width)


def _clamped(stated: float, more: float | None) -> float:
    refined = stated + (more or 0.0)
    return max(LEAST_FACTOR * stated, min(MOST_FACTOR * stated, refined))


def _stated_seconds(bucket: CostBucket, kind: StepKind, width: int) -> float:
    if kind is StepKind.PIPELINED:
        return bucket.pipelined_s
    if kind is StepKind.SYNCHRONOUS:
        return bucket.synchronous_s
    return bucket.verify_seconds(width)
