"""Replies in plain steps of their own: exact where the machine's speed drifts, steps by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from harness.acceptance_report import paced_part
from harness.arms import OFF, ON
from harness.asking import Answer, Ask
from harness.pace import LEAST, paced_rate, plain_step_s
from harness.sse import Reply, Step
from support.benchmark_fakes import reply

PLAIN = (1, 0.010, 0)
ROUND = (4, 0.015, 1)
UNOVERLAPPED = (1, 0.012, 0)


def made_of(*gaps: tuple[int, float, int]) -> Reply:
    """A reply whose first token is followed by these: tokens, seconds, rounds."""
    tokens, seconds, rounds = (list(accumulate(column)) for column in zip(*gaps, strict=True))
    steps = [Step(1, 0.0, 0)]
    steps += [Step(1 + t, s, r) for t, s, r in zip(tokens, seconds, rounds, strict=True)]
    return replace(reply(tokens=1 + tokens[-1]), steps=tuple(steps))


def in_plain_steps(*gaps: tuple[int, float, int]) -> tuple[int, float]:
    rate = paced_rate(made_of(*gaps))
    assert rate is not None
    return rate.tokens, rate.seconds


def test_plain_steps_are_the_unit() -> None:
    assert in_plain_steps(*[PLAIN] * 50) == (50, pytest.approx(50.0))


def test_a_round_and_the_steps_after_it_are_counted_at_what_they_took() -> None:
    gaps = [PLAIN] * 30 + [ROUND, UNOVERLAPPED] + [PLAIN] * 30
    assert in_plain_steps(*gaps) == (65, pytest.approx(62.7))


def test_many_rounds_do_not_move_the_unit() -> None:
    """Only every ninth step is a plain one that no round touched."""
    gaps = [ROUND, UNOVERLAPPED, UNOVERLAPPED, PLAIN, PLAIN] * 20
    tokens, steps = in_plain_steps(*gaps)
    assert (tokens, steps) == (8 * 20, pytest.approx((1.5 + 1.2 + 1.2 + 2) * 20))


def test_a_machine_that_slows_down_between_is_not_counted() -> None:
    slow = [(tokens, 2 * seconds, rounds) for tokens, seconds, rounds in [PLAIN, ROUND]]
    gaps = [PLAIN] * 60 + [ROUND] + [PLAIN] * 60 + [slow[0]] * 60 + [slow[1]] + [slow[0]] * 60
    tokens, steps = in_plain_steps(*gaps)
    assert tokens == 248
    assert steps == pytest.approx(240 + 3.0, rel=1e-9)


def test_pieces_of_several_plain_tokens_count_by_the_token() -> None:
    assert in_plain_steps(*[(2, 0.020, 0)] * 30) == (60, pytest.approx(60.0))


def test_too_few_plain_steps_say_nothing() -> None:
    enough = made_of(*[PLAIN] * LEAST)
    assert paced_rate(enough) is not None
    few = made_of(*[PLAIN] * LEAST, ROUND)  # the one before a round does not count
    assert paced_rate(few) is None
    assert plain_step_s(few) is None
    assert paced_rate(reply()) is None


def test_the_report_shows_it_where_it_is_told() -> None:
    def answer(number: int, on: Reply) -> Answer:
        off = made_of(*[PLAIN] * 60)
        return Answer(Ask("plain-sampled", "q", number, ()), {OFF: (off,), ON: (on,)})

    on = made_of(*[PLAIN] * 30, ROUND, *[PLAIN] * 26)
    (table,) = paced_part([answer(number, on) for number in range(3)], [ON])
    row = table.splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        ON,
        "10.00",
        "+4.3 %",
        "+4.3 % to +4.3 %",
        "3",
    ]
    assert paced_part([answer(0, reply())], [ON]) == []
