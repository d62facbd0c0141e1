from __future__ import annotations

import pytest

from harness.comparison import Interval, QuestionRow
from harness.verdicts import (
    Outcome,
    at_least,
    no_question_below,
    not_worse,
    percent,
    share_at_least,
    spread_of,
)


def row(question: str, ratio: float) -> QuestionRow:
    return QuestionRow(question, ratio, ratio, ratio, 5)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.99, 1.01, Outcome.MET), (0.97, 0.98, Outcome.MISSED), (0.98, 1.0, Outcome.UNDECIDED)],
)
def test_a_goal_is_decided_by_the_whole_interval(low: float, high: float, outcome: Outcome) -> None:
    assert (
        at_least("goal", Interval((low + high) / 2, low, high), 0.99, rounds=5).outcome is outcome
    )


def test_two_rounds_decide_nothing() -> None:
    sure = Interval(2.0, 2.0, 2.0)
    assert at_least("goal", sure, 1.0, rounds=2).outcome is Outcome.UNDECIDED
    assert share_at_least("goal", sure, 1.0, rounds=2).outcome is Outcome.UNDECIDED
    assert not_worse("goal", sure, sure, rounds=2).outcome is Outcome.UNDECIDED
    rows = [row("a", 2.0)]
    assert no_question_below("g", rows, 0.0, 0.0, rounds=2).outcome is Outcome.UNDECIDED


def test_a_line_says_goal_and_numbers() -> None:
    verdict = at_least("(a) goal", Interval(0.995, 0.991, 1.004), 0.99, rounds=5)
    assert verdict.line() == "**met**: (a) goal: -0.5 % [-0.9 %, +0.4 %]"
    share = share_at_least("(b) goal", Interval(0.85, 0.8, 0.89), 0.9, rounds=5)
    assert share.line() == "**missed**: (b) goal: 0.85 [0.80, 0.89]"


def test_the_worst_question_is_allowed_the_spread() -> None:
    rows = [row("a", 1.01), row("b", 0.972)]
    within = no_question_below("goal", rows, -0.02, spread=0.01, rounds=5)
    assert within.outcome is Outcome.MET
    assert within.measured == "worst -2.8 % (b), spread ±1.0 %"
    beyond = no_question_below("goal", rows, -0.02, spread=0.005, rounds=5)
    assert beyond.outcome is Outcome.MISSED


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        (Interval(0.985, 0.97, 1.0), Outcome.MET),
        (Interval(0.96, 0.95, 0.97), Outcome.MISSED),
        (Interval(0.97, 0.95, 0.99), Outcome.UNDECIDED),
    ],
)
def test_not_worse_is_read_off_the_noise_floor(measured: Interval, outcome: Outcome) -> None:
    noise = Interval(1.0, 0.98, 1.015)
    assert not_worse("goal", measured, noise, rounds=5).outcome is outcome


def test_the_spread_is_the_largest_change_either_way() -> None:
    assert spread_of([row("a", 1.01), row("b", 0.97)]) == pytest.approx(0.03)
    assert spread_of([]) == 0.0


def test_percent() -> None:
    assert (percent(1.052), percent(0.99), percent(1.0)) == ("+5.2 %", "-1.0 %", "+0.0 %")
