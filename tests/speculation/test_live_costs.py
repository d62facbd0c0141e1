"""The cost table follows what steps take: medians, clamped, neighbours for what was not seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.live_costs import (
    FRESH_STEPS,
    LEAST_FACTOR,
    LEAST_STEPS,
    MOST_FACTOR,
    REMEMBERED,
    LiveCosts,
    LiveStep,
    StepKind,
)

NEAR = CostBucket(100, 1.0, 2.0, {2: 3.0, 4: 5.0, 8: 9.0})
FAR = CostBucket(1000, 2.0, 3.0, {2: 4.0, 8: 10.0})
STATED = StepCosts("machine", "test", (NEAR, FAR))


def told(*groups: tuple[StepKind, int, int, list[float]], pace: float = 1.0) -> StepCosts:
    """Each step right after a pipelined one that takes `pace` times what is stated."""
    live = LiveCosts(STATED)
    for _ in range(LEAST_STEPS):
        live.observe(LiveStep(StepKind.PIPELINED, 1, 100, pace * NEAR.pipelined_s))
    for kind, width, context, times in groups:
        for seconds in times:
            live.observe(LiveStep(StepKind.PIPELINED, 1, 100, pace * NEAR.pipelined_s))
            live.observe(LiveStep(kind, width, context, seconds))
    return live.costs()


def test_nothing_told_changes_nothing() -> None:
    assert LiveCosts(STATED).costs() == STATED


def test_few_steps_say_nothing_and_one_more_does() -> None:
    few = [2.5] * (LEAST_STEPS - 1)
    assert told((StepKind.SYNCHRONOUS, 1, 100, few)) == STATED
    assert told((StepKind.SYNCHRONOUS, 1, 100, [*few, 2.5])).bucket_for(100).synchronous_s == 2.5


def test_each_bucket_is_corrected_by_its_own_steps() -> None:
    table = told((StepKind.SYNCHRONOUS, 1, 900, [4.5] * LEAST_STEPS))
    assert table.bucket_for(100) == NEAR
    assert table.bucket_for(1000) == CostBucket(1000, 2.0, 4.5, {2: 5.5, 8: 11.5})


def test_a_width_that_was_not_seen_costs_as_much_more_as_its_nearest() -> None:
    """Width 8 takes 9 s more, width 2 what was stated; of equally near ones the narrower counts."""
    table = told(
        (StepKind.VERIFY, 8, 100, [18.0] * LEAST_STEPS),
        (StepKind.VERIFY, 2, 100, [3.0] * LEAST_STEPS),
        (StepKind.SYNCHRONOUS, 1, 100, [6.0] * LEAST_STEPS),
    )
    assert table.bucket_for(100) == CostBucket(100, 1.0, 6.0, {2: 3.0, 4: 5.0, 8: 18.0})


def test_a_width_between_two_stated_ones_enters_the_table() -> None:
    table = told((StepKind.VERIFY, 6, 100, [8.5] * LEAST_STEPS))
    assert table.bucket_for(100).verify_s == pytest.approx({2: 4.5, 4: 6.5, 6: 8.5, 8: 10.5})


def test_a_machine_that_slows_every_step_changes_no_price() -> None:
    table = told(
        (StepKind.SYNCHRONOUS, 1, 100, [5.0] * LEAST_STEPS),
        (StepKind.VERIFY, 4, 100, [12.5] * LEAST_STEPS),
        pace=2.5,
    )
    assert table == STATED


def test_a_step_far_from_plain_ones_says_nothing() -> None:
    live = LiveCosts(STATED)
    slow = LiveStep(StepKind.VERIFY, 4, 100, 9.0)
    for _ in range(REMEMBERED):
        live.observe(slow)
    assert live.costs() == STATED
    for _ in range(LEAST_STEPS):
        live.observe(LiveStep(StepKind.PIPELINED, 1, 100, 1.0))
    for _ in range(FRESH_STEPS):
        live.observe(LiveStep(StepKind.VERIFY, 4, 100, 6.0))
    for _ in range(REMEMBERED):
        live.observe(slow)
    assert live.costs().bucket_for(100).verify_s[4] == 6.0


def test_a_few_slow_steps_do_not_move_a_median() -> None:
    times = [2.0] * (LEAST_STEPS + 2) + [60.0] * LEAST_STEPS
    assert told((StepKind.SYNCHRONOUS, 1, 0, times)).bucket_for(100).synchronous_s == 2.0


def test_old_steps_are_forgotten() -> None:
    times = [4.0] * REMEMBERED + [2.5] * REMEMBERED
    assert told((StepKind.SYNCHRONOUS, 1, 0, times)).bucket_for(100).synchronous_s == 2.5


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_are_none_are_ignored(seconds: float) -> None:
    assert told((StepKind.SYNCHRONOUS, 1, 0, [seconds] * REMEMBERED)) == STATED


@given(
    steps=st.lists(
        st.builds(
            LiveStep,
            st.sampled_from(StepKind),
            st.integers(1, 12),
            st.integers(0, 3000),
            st.floats(1e-9, 1e9),
        ),
        max_size=80,
    )
)
def test_no_figure_goes_beyond_its_clamps(steps: list[LiveStep]) -> None:
    live = LiveCosts(STATED)
    for step in steps:
        live.observe(step)
    assert [b.pipelined_s for b in live.costs().buckets] == [1.0, 2.0]
    for stated, refined in zip(STATED.buckets, live.costs().buckets, strict=True):
        pairs = [
            (stated.synchronous_s, refined.synchronous_s),
            *((stated.verify_seconds(w), s) for w, s in refined.verify_s.items()),
        ]
        for was, now in pairs:
            assert LEAST_FACTOR * was <= now * (1 + 1e-12)
            assert now <= MOST_FACTOR * was * (1 + 1e-12)
