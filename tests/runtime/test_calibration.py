"""Calibration: each figure is the median tick of its kind, over a context that was not read."""

from __future__ import annotations

from dataclasses import dataclass

from support.fakes import ScriptedEngine, ScriptedHandle, Window
from surefoot.app.calibration import (
    GREEDY,
    SAMPLED,
    Calibration,
    CalibrationPlan,
    calibrate,
    finish,
)
from surefoot.core.request import SamplingParams
from surefoot.core.step import FromStep, StepPlan, StepResult

SECONDS_BY_WIDTH = {1: 1.0, 2: 1.5, 3: 2.25, 4: 3.0}
PIPELINED_S = 0.75


@dataclass(frozen=True)
class TimedHandle:
    engine: TimedEngine
    handle: ScriptedHandle
    seconds: float

    def result(self) -> StepResult:
        self.engine.now += self.seconds
        return self.handle.result()


class TimedEngine(ScriptedEngine):
    """Reading a step moves `now` by what its width costs; one wired to the step before costs
    less."""

    def __init__(self, capacity: int, num_windows: int = 1) -> None:
        super().__init__(num_windows, capacity, vocab=50)
        self.jitter = 0.0
        self.now = 0.0
        self.filled: list[tuple[int, int]] = []
        self.params: set[SamplingParams] = set()

    def submit(self, plan: StepPlan) -> TimedHandle:  # type: ignore[override]
        (row,) = plan.rows
        self.params.add(row.sampling.params)
        wired = isinstance(row.feed, FromStep)
        seconds = PIPELINED_S if wired else SECONDS_BY_WIDTH[row.num_fed]
        seconds += self.jitter * (len(self.plans) % 2)
        return TimedHandle(self, super().submit(plan), seconds)

    def fill_window(self, window: int, length: int) -> None:
        self.filled.append((window, length))
        tokens = [17 + index % 200 for index in range(length)]
        self.windows[window] = Window(row_id=0, tokens=tokens)


def measure(
    capacity: int, contexts: tuple[int, ...], widths: tuple[int, ...] = (2, 3, 4)
) -> tuple[TimedEngine, Calibration]:
    engine = TimedEngine(capacity)
    plan = CalibrationPlan("tiny", "a test", 0, contexts, widths, GREEDY)
    return engine, finish(calibrate(engine, plan, lambda: engine.now))


def test_every_kind_costs_its_own_ticks() -> None:
    engine, calibration = measure(512, (100, 300))
    assert calibration.quiet
    for bucket, context in zip(calibration.costs.buckets, (100, 300), strict=True):
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
    _, calibration = measure(200, (100, 300))
    assert [bucket.context for bucket in calibration.costs.buckets] == [100]


def test_the_smallest_room_still_measures_every_width() -> None:
    _, calibration = measure(100 + 2 * 4 + 4, (100,))
    assert calibration.costs.buckets[0].verify_s == SECONDS_BY_WIDTH
    _, calibration = measure(100 + 2 * 4 + 3, (40, 100))
    assert [bucket.context for bucket in calibration.costs.buckets] == [40]


def test_the_dummy_row_keeps_to_its_window() -> None:
    engine = TimedEngine(256, num_windows=3)
    plan = CalibrationPlan("tiny", "a test", 2, (100,), (2,), SAMPLED)
    finish(calibrate(engine, plan, lambda: engine.now))
    assert {row.window for step in engine.plans for row in step.rows} == {2}
    assert engine.params == {SAMPLED}
    assert engine.released == [2]


def test_unsteady_steps_are_not_quiet() -> None:
    engine = TimedEngine(512)
    engine.jitter = 1.0
    plan = CalibrationPlan("tiny", "a test", 0, (100,), (2,), GREEDY)
    assert not finish(calibrate(engine, plan, lambda: engine.now)).quiet


def test_it_comes_in_bursts_of_one_round_or_of_a_few_plain_steps() -> None:
    engine = TimedEngine(512)
    plan = CalibrationPlan("tiny", "a test", 0, (100,), (2, 3, 4), GREEDY, rounds=2)
    bursts = calibrate(engine, plan, lambda: engine.now)
    sizes = []
    before = 0
    for _ in bursts:
        sizes.append(len(engine.plans) - before)
        before = len(engine.plans)
    assert len(sizes) == 3 * 4
    assert max(sizes) <= 10
