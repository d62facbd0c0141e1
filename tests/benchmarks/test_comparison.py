from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison import (
    Block,
    Rate,
    bootstrap,
    gain_share,
    having,
    jain_index,
    percentile,
    question_rows,
    speed_ratio,
)


def block(question: str, variant: int | None = None, **seconds: float) -> Block:
    """Every arm wrote 100 tokens in so many seconds."""
    return Block(question, variant, {arm: Rate(100, value) for arm, value in seconds.items()})


def test_one_block_is_its_own_ratio() -> None:
    assert speed_ratio([block("a", off=2.0, on=1.0)], "off", "on") == 2.0


def test_a_unit_is_the_median_of_its_blocks() -> None:
    blocks = [block("a", off=1.0, on=on) for on in (1.0, 0.5, 0.125)]
    assert speed_ratio(blocks, "off", "on") == 2.0


def test_the_total_weighs_units_by_the_seconds_of_the_base() -> None:
    blocks = [block("a", off=3.0, on=1.0), block("b", off=1.0, on=1.0)]
    assert speed_ratio(blocks, "off", "on") == pytest.approx(4.0 / 2.0)


def test_seeds_of_a_question_are_units_of_their_own() -> None:
    blocks = [block("a", 1, off=1.0, on=0.5), block("a", 2, off=1.0, on=1.5)]
    assert speed_ratio(blocks, "off", "on") == pytest.approx(2.0 / 2.0)


def test_parted_texts_are_compared_by_the_token() -> None:
    parted = Block("a", None, {"off": Rate(100, 1.0), "on": Rate(50, 0.5)})
    assert speed_ratio([parted], "off", "on") == 1.0


def test_gain_share_is_of_the_full_gain() -> None:
    blocks = [block("a", off=3.0, on=2.0, full=1.5)]
    assert gain_share(blocks, "off", "on", "full") == pytest.approx(0.5)
    no_gain = [block("a", off=1.0, on=1.0, full=2.0)]
    assert gain_share(no_gain, "off", "on", "full") == float("inf")


def test_question_rows_show_the_range_of_blocks() -> None:
    blocks = [block("a", off=1.0, on=on) for on in (1.0, 0.5, 0.25)]
    (row,) = question_rows(blocks, "off", "on")
    assert (row.question, row.ratio, row.low, row.high, row.blocks) == ("a", 2.0, 1.0, 4.0, 3)


def test_blocks_without_an_arm_are_left_out() -> None:
    whole, part = block("a", off=1.0, on=1.0), block("b", off=1.0)
    assert having([whole, part], "off", "on") == [whole]


def test_an_interval_without_noise_is_a_point() -> None:
    blocks = [block("a", off=2.0, on=1.0)] * 5
    interval = bootstrap(blocks, partial(speed_ratio, base="off", other="on"), draws=50)
    assert (interval.value, interval.low, interval.high) == (2.0, 2.0, 2.0)


def test_sittings_are_drawn_whole_once_there_are_five() -> None:
    """Servers that differ from sitting to sitting, and nothing else: with many blocks a question
    only the draw of sittings can show it."""
    statistic = partial(speed_ratio, base="off", other="on")

    def interval_of(num_sittings: int) -> float:
        ons = {sitting: 1.0 + 0.1 * (sitting % 2) for sitting in range(num_sittings)}
        blocks = [
            replace(block(question, None, off=1.0, on=on), sitting=sitting)
            for sitting, on in ons.items()
            for question in map(str, range(40))
        ]
        interval = bootstrap(blocks, statistic, draws=400)
        return interval.high - interval.low

    assert interval_of(4) < 0.03
    assert interval_of(8) > 0.08


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=8), st.integers(0, 99))
def test_an_interval_lies_within_the_blocks_and_is_reproducible(
    ons: list[float], seed: int
) -> None:
    blocks = [block("a", off=1.0, on=on) for on in ons]
    statistic = partial(speed_ratio, base="off", other="on")
    interval = bootstrap(blocks, statistic, draws=40, seed=seed)
    slowest, fastest = 1.0 / max(ons), 1.0 / min(ons)
    assert slowest - 1e-9 <= interval.low <= interval.high <= fastest + 1e-9
    assert interval == bootstrap(blocks, statistic, draws=40, seed=seed)


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.25, 1.75), (0.9, 3.7)]
)
def test_percentiles_are_linear(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)


def test_a_percentile_at_the_last_finite_value_is_that_value() -> None:
    assert percentile([1.0, 2.0, float("inf")], 0.5) == 2.0
    assert percentile([float("inf"), float("inf")], 0.3) == float("inf")


def test_jain_index() -> None:
    assert jain_index([5.0, 5.0, 5.0]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain_index([0.0]) == 1.0
