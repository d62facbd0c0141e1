"""Paired statistics: how much faster one arm is than another, and how sure that is.

A *block* is one question asked of every arm, one after the other in random order, so that what
the machine does to one it does to all. A *unit* is a question with a seed (greedy: the question).
Per unit the ratio of speeds is the median over its blocks. In the total each unit weighs what it
costs: the seconds the base arm spends on it, for as many tokens as were compared:

    total = sum(base seconds) / sum(base seconds / unit ratio)

so it says how much sooner all questions would be done, at equal token counts. Texts may part, so
every speed is seconds per token of the text that arm wrote.

A *sitting* is what one set of server processes answered. Two processes of one build differ by a few
percent for as long as they live, so blocks of one sitting share that error; with enough sittings
they are drawn whole, and the interval covers it.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

BOOTSTRAP_DRAWS = 2000
CONFIDENCE = 0.95
LEAST_SITTINGS = 5
"""From so many on they are what is drawn; fewer say nothing of what sittings differ by."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one arm took for one reply (or for several at once)."""

    tokens: int
    seconds: float

    @property
    def per_token_s(self) -> float:
        return self.seconds / self.tokens

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Block:
    """`variant` is the sampling seed, None for greedy."""

    question: str
    variant: int | None
    arms: Mapping[str, Rate]
    sitting: int = 0

    def ratio(self, base: str, other: str) -> float:
        """Above 1: `other` is faster."""
        return self.arms[base].per_token_s / self.arms[other].per_token_s


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question: the ratio, and the smallest and largest ratio of a single block."""

    question: str
    ratio: float
    low: float
    high: float
    blocks: int


Statistic = Callable[[Sequence[Block]], float]


def having(blocks: Iterable[Block], *arms: str) -> list[Block]:
    """The blocks in which all these arms answered."""
    return [block for block in blocks if all(arm in block.arms for arm in arms)]


def by_sitting(blocks: Iterable[Block]) -> dict[int, list[Block]]:
    groups: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        groups[block.sitting].append(block)
    return dict(groups)


def by_question(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    groups: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        groups[block.question].append(block)
    return dict(groups)


def speed_ratio(blocks: Sequence[Block], base: str, other: str) -> float:
    """See the module. The blocks must hold both arms."""
    units: dict[tuple[str, int | None], list[Block]] = defaultdict(list)
    for block in blocks:
        units[block.question, block.variant].append(block)
    base_s = other_s = 0.0
    for unit in units.values():
        weight = unit_seconds(unit, base, other)
        base_s += weight
        other_s += weight / statistics.median(block.ratio(base, other) for block in unit)
    return base_s / other_s


def unit_seconds(unit: Sequence[Block], base: str, other: str) -> float:
    """What the base arm takes for this unit's tokens: the mean length of both arms' replies."""
    tokens = statistics.mean((b.arms[base].tokens + b.arms[other].tokens) / 2 for b in unit)
    return tokens * statistics.median(block.arms[base].per_token_s for block in unit)


def gain_share(blocks: Sequence[Block], base: str, other: str, full: str) -> float:
    """`other`'s gain over `base` as a share of `full`'s gain; infinite where `full` gains none."""
    gain = speed_ratio(blocks, base, full) - 1.0
    if gain <= 0.0:
        return float("inf")
    return (speed_ratio(blocks, base, other) - 1.0) / gain


def bootstrap(
    blocks: Sequence[Block], statistic: Statistic, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> Interval:
    """The statistic with its 95 % percentile interval: whole sittings are drawn anew with
    replacement where there are `LEAST_SITTINGS`; otherwise each question's blocks, and the
    questions themselves stay."""
    random_numbers = random.Random(seed)
    redraw = partial(redrawn, blocks, random_numbers)
    drawn = sorted(statistic(redraw()) for _ in range(draws))
    tail = (1.0 - CONFIDENCE) / 2.0
    return Interval(statistic(blocks), percentile(drawn, tail), percentile(drawn, 1.0 - tail))


def redrawn(blocks: Sequence[Block], random_numbers: random.Random) -> list[Block]:
    """One draw of `bootstrap`."""
    sittings = list(by_sitting(blocks).values())
    if len(sittings) >= LEAST_SITTINGS:
        return [b for group in random_numbers.choices(sittings, k=len(sittings)) for b in group]
    groups = by_question(blocks).values()
    return [b for group in groups for b in random_numbers.choices(group, k=len(group))]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours; `ordered` ascends and is not empty."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high, part = ordered[below], ordered[above], place - below
    return low if low == high or part == 0.0 else low + (high - low) * part


def question_rows(blocks: Sequence[Block], base: str, other: str) -> list[QuestionRow]:
    """One row a question, in the order in which the questions first appear."""
    rows = []
    for question, group in by_question(blocks).items():
        ratios = [block.ratio(base, other) for block in group]
        ratio = speed_ratio(group, base, other)
        rows.append(QuestionRow(question, ratio, min(ratios), max(ratios), len(ratios)))
    return rows


def median_speed(blocks: Sequence[Block], arm: str) -> float:
    """Tokens per second of one arm, the median over blocks."""
    return statistics.median(block.arms[arm].per_second for block in blocks)


def jain_index(values: Sequence[float]) -> float:
    """Fairness of a division: 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
