"""The warm-up: every width once, for each way to draw, and the window is free again."""

from __future__ import annotations

from support.fakes import ScriptedEngine, plan_table
from surefoot.app.warm_up import warm_up_widths
from surefoot.core.request import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.8, seed=3)


def test_every_width_of_a_round_runs_once() -> None:
    engine = ScriptedEngine(2, 64)
    warm_up_widths(engine, 3, [GREEDY])
    rows = [row for plan in plan_table(engine.plans) for row in plan]
    assert [(start, len(feed), sampled) for _, start, feed, sampled in rows] == [
        (0, 1, 0),
        (1, 1, 0),
        (1, 2, 0),
        (1, 3, 0),
        (1, 4, 0),
    ]
    assert engine.released == [0]


def test_each_way_to_draw_has_its_own_turn() -> None:
    engine = ScriptedEngine(1, 64)
    warm_up_widths(engine, 1, [GREEDY, SEEDED])
    params = [row.sampling.params for plan in engine.plans for row in plan.rows]
    assert params == [GREEDY] * 3 + [SEEDED] * 3
    assert [plan.step_id for plan in engine.plans] == list(range(6))


def test_rounds_wider_than_eight_wait_for_their_first_use() -> None:
    engine = ScriptedEngine(1, 64)
    warm_up_widths(engine, 15, [GREEDY])
    assert [row.num_fed for plan in engine.plans for row in plan.rows] == [1, *range(1, 9)]


def test_a_width_that_no_window_holds_is_left_out() -> None:
    engine = ScriptedEngine(1, 5)
    warm_up_widths(engine, 64, [GREEDY])
    assert [row.num_fed for plan in engine.plans for row in plan.rows] == [1, 1, 2, 3, 4]
