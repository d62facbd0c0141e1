"""Met, missed or undecided: a goal against what was measured and how noisy it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.comparison import Interval, QuestionRow

MIN_ROUNDS = 3
"""With fewer blocks a question an interval says nothing."""


class Outcome(StrEnum):
    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    outcome: Outcome
    measured: str

    def line(self) -> str:
        return f"**{self.outcome}**: {self.goal}: {self.measured}"


def percent(ratio: float) -> str:
    """A ratio of speeds as a change: 1.052 is +5.2 %."""
    return f"{100.0 * (ratio - 1.0):+.1f} %"


def at_least(goal: str, measured: Interval, limit: float, rounds: int) -> Verdict:
    """Decided when the whole interval lies on one side of the limit (both are ratios)."""
    shown = f"{percent(measured.value)} [{percent(measured.low)}, {percent(measured.high)}]"
    return Verdict(goal, outcome_of(measured, limit, rounds), shown)


def share_at_least(goal: str, measured: Interval, limit: float, rounds: int) -> Verdict:
    """The same for a plain share."""
    shown = f"{measured.value:.2f} [{measured.low:.2f}, {measured.high:.2f}]"
    if math.isinf(measured.value):
        shown = "there was no gain to share"
    return Verdict(goal, outcome_of(measured, limit, rounds), shown)


def outcome_of(measured: Interval, limit: float, rounds: int) -> Outcome:
    if rounds < MIN_ROUNDS:
        return Outcome.UNDECIDED
    if measured.low >= limit:
        return Outcome.MET
    return Outcome.MISSED if measured.high < limit else Outcome.UNDECIDED


def spread_of(rows: Sequence[QuestionRow]) -> float:
    """The largest change that a question showed between two askings of one server."""
    return max((abs(row.ratio - 1.0) for row in rows), default=0.0)


def no_question_below(
    goal: str, rows: Sequence[QuestionRow], limit: float, spread: float, rounds: int
) -> Verdict:
    """Met unless a question is below the limit by more than the spread; both are changes, as
    -0.02 and 0.01."""
    worst = min(rows, key=lambda row: row.ratio)
    measured = f"worst {percent(worst.ratio)} ({worst.question}), spread ±{100 * spread:.1f} %"
    if rounds < MIN_ROUNDS:
        return Verdict(goal, Outcome.UNDECIDED, measured)
    missed = worst.ratio - 1.0 < limit - spread
    return Verdict(goal, Outcome.MISSED if missed else Outcome.MET, measured)


def not_worse(goal: str, measured: Interval, noise: Interval, rounds: int) -> Verdict:
    """Against the noise floor: met when the change itself is within what asking the same server
    twice shows, missed when its whole interval is below that."""
    spread = max(abs(noise.low - 1.0), abs(noise.high - 1.0))
    shown = (
        f"{percent(measured.value)} [{percent(measured.low)}, {percent(measured.high)}], "
        f"off against off ±{100 * spread:.1f} %"
    )
    if rounds < MIN_ROUNDS:
        return Verdict(goal, Outcome.UNDECIDED, shown)
    if measured.value >= 1.0 - spread:
        return Verdict(goal, Outcome.MET, shown)
    missed = measured.high < 1.0 - spread
    return Verdict(goal, Outcome.MISSED if missed else Outcome.UNDECIDED, shown)
