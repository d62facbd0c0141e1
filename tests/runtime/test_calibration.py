"""Calibration: each figure is the median tick of its kind, over a context that was not read."""

from __future__ import annotations

from fakes import ScriptedEngine, ScriptedHandle, Window
from surefoot.core.request import SamplingParams
from surefoot.core.step import FromStep, StepPlan
from surefoot.runtime.calibration import GREEDY, SAMPLED, measure_step_costs
from surefoot.speculation.costs import StepCosts

SECONDS_BY_WIDTH = {1: 1.0, 2: 1.5, 3: 2.25, 4: 3.0}
PIPELINED_S = 0.75


class TimedEngine(ScriptedEngine):
    """Each step moves `now` by what its width costs; a step wired to the one before costs less."""

    def __init__(self, capacity: int) -> None:
        super().__init__(1, capacity, vocab=50)
        self.now = 0.0
        self.filled: list[tuple[int, int]] = []
        self.params: set[SamplingParams] = set()

    def submit(self, plan: StepPlan) -> ScriptedHandle:
        (row,) = plan.rows
        self.params.add(row.sampling.params)
        wired = isinstance(row.feed, FromStep)
        self.now += PIPELINED_S if wired else SECONDS_BY_WIDTH[row.num_fed]
        return super().submit(plan)

    def fill_window(self, window: int, length: int) -> None:
        self.filled.append((window, length))
        tokens = [17 + index % 200 for index in range(length)]
        self.windows[window] = Window(row_id=0, tokens=tokens)


def measure(capacity: int, contexts: tuple[int, ...]) -> tuple[TimedEngine, StepCosts]:
    engine = TimedEngine(capacity)
    costs = measure_step_costs(
        engine,
        name="tiny",
        source="a test",
        contexts=contexts,
        widths=(2, 3, 4),
        sampling=GREEDY,
        clock=lambda: engine.now,
    )
    return engine, costs


def test_every_kind_costs_its_own_ticks() -> None:
    engine, costs = measure(512, (100, 300))
    for bucket, context in zip(costs.buckets, (100, 300), strict=True):
        assert bucket.context == context
        assert bucket.pipelined_s == PIPELINED_S
        assert bucket.synchronous_s == 1.0
        assert bucket.verify_s == SECONDS_BY_WIDTH
    assert engine.filled == [(0, 100), (0, 300)]
    assert engine.released == [0, 0]


def test_the_context_is_never_fed() -> None:
    engine, _ = measure(512, (300,))
    fed = [row.num_fed for plan in engine.plans for row in plan.rows]
    assert max(fed) == 4
    assert min(row.start for plan in engine.plans for row in plan.rows) == 299


def test_contexts_that_do_not_fit_are_left_out() -> None:
    _, costs = measure(200, (100, 300))
    assert [bucket.context for bucket in costs.buckets] == [100]


def test_sampled_tables_draw() -> None:
    engine = TimedEngine(256)
    measure_step_costs(
        engine,
        name="tiny",
        source="a test",
        contexts=(100,),
        widths=(2,),
        sampling=SAMPLED,
        clock=lambda: engine.now,
    )
    assert engine.params == {SAMPLED}
