"""Measuring what steps cost: the real scheduler over the real engine, one dummy row.

Every figure is a tick's wall time, so the scheduler's own work counts, not the forward alone. The
row's context is noise written straight into its window, so a bucket costs no prefill. The work
comes in bursts of a tick or a few, so that a server can do it while it has nothing else to do and
a request that arrives waits for one burst at most.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from surefoot.config import SchedulerConfig
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.core.step import StepEngine, StepHandle, StepPlan
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.speculation.costs import CostBucket, StepCosts

Result = TypeVar("Result")

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.2, top_p=0.95, seed=1)
"""A draw with the top-p filter, the dearest of the filters. Over noise the logits are flatter than
over text, and sorting out 95 % of a flat distribution takes five times as long: the low temperature
makes the draws what chat's are at 0.8."""

DEFAULT_CONTEXTS = (256, 1024)
DEFAULT_ROUNDS = 5
"""Measurements of each figure: a few tens of milliseconds each, five seconds in all for the
default model's two tables on two cores."""

QUIET_SPREAD = 1.3
"""A bucket's pipelined ticks that differ by more than this (upper against lower quartile) say that
the machine was busy: a table that was measured unasked is then used, not kept."""

ASSUMED = StepCosts(
    "assumed",
    "SmolLM2-135M-Instruct on two AVX2 cores, until this machine is measured",
    (
        CostBucket(
            256,
            0.0140,
            0.0145,
            {1: 0.0145, 2: 0.0195, 3: 0.0215, 4: 0.0260, 8: 0.0375, 16: 0.061, 65: 0.203},
        ),
        CostBucket(
            1024,
            0.0200,
            0.0205,
            {1: 0.0205, 2: 0.0255, 3: 0.0340, 4: 0.0370, 8: 0.0520, 16: 0.086, 65: 0.294},
        ),
    ),
)
"""What a server prices by in the seconds before its own table is measured. The ratios are the
first measurements of this engine (`docs/design.md`), the middle of each range, and from 16 on the
line that later ones follow."""

_PIPELINED, _SYNCHRONOUS = 0, 1
"""Kinds of tick beside verify rounds, which are named by their width (2 and more)."""

_PIPELINED_TICKS = 4
_FIRST_TOKEN, _NUM_TOKENS = 17, 200


class CalibratedEngine(StepEngine, Protocol):
    """An engine whose windows can be filled with noise."""

    def fill_window(self, window: int, length: int) -> None: ...


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What to measure. `window` is used for the dummy row and by nobody else meanwhile. `widths`
    lists the verify widths, 2 and up; width 1 is the synchronous plain step. Contexts that do not
    fit the engine's windows are left out."""

    name: str
    source: str
    window: int
    contexts: Sequence[int]
    widths: Sequence[int]
    sampling: SamplingParams
    rounds: int = DEFAULT_ROUNDS


@dataclass(frozen=True, slots=True)
class Calibration:
    """The table, and whether the machine was quiet enough for it to be kept."""

    costs: StepCosts
    quiet: bool


def calibrate(
    engine: CalibratedEngine, plan: CalibrationPlan, clock: Callable[[], float]
) -> Generator[None, None, Calibration]:
    """Yields after each burst; returns medians over `plan.rounds` interleaved rounds."""
    buckets: list[CostBucket] = []
    quiet = True
    for context in plan.contexts:
        if not fits(context, max(plan.widths), engine.capacity):
            continue
        engine.fill_window(plan.window, context)
        dummy = _DummyRow(engine, plan, context, clock)
        yield from _measure_round(dummy, plan.widths)
        seconds: dict[int, list[float]] = {}
        for _ in range(plan.rounds):
            for kind, times in (yield from _measure_round(dummy, plan.widths)).items():
                seconds.setdefault(kind, []).extend(times)
        engine.release_window(plan.window)
        quiet = quiet and _spread(seconds[_PIPELINED]) <= QUIET_SPREAD
        medians = {kind: statistics.median(times) for kind, times in seconds.items()}
        pipelined, synchronous = medians.pop(_PIPELINED), medians[_SYNCHRONOUS]
        verify = dict(sorted(medians.items()))
        buckets.append(CostBucket(context, pipelined, synchronous, verify))
    return Calibration(StepCosts(plan.name, plan.source, tuple(buckets)), quiet)


def finish(bursts: Generator[None, None, Result]) -> Result:
    """Do all bursts at once."""
    while True:
        try:
            next(bursts)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def fits(context: int, widest: int, capacity: int) -> bool:
    """A window holds `context` tokens and a dummy row's rounds behind them."""
    return context + 2 * max(widest, 2) + 4 <= capacity


def _measure_round(
    dummy: _DummyRow, widths: Sequence[int]
) -> Generator[None, None, dict[int, list[float]]]:
    """A verify round of each width, a synchronous plain tick and pipelined ones, in seconds."""
    seconds: dict[int, list[float]] = {}
    for width in widths:
        yield
        seconds[width] = [dummy.tick(width)]
    yield
    dummy.make_room(_PIPELINED_TICKS + 1)
    # The first of these ends by priming, then each primes a step and reads the one before; the
    # step that the second reads was fed from the host, so it does not count.
    seconds[_SYNCHRONOUS] = [dummy.tick(_SYNCHRONOUS)]
    seconds[_PIPELINED] = [dummy.tick(_PIPELINED) for _ in range(_PIPELINED_TICKS)][1:]
    dummy.end()
    return seconds


class _DummyRow:
    """A row over a window of noise that runs one kind of tick when told to. It starts anew when
    its room runs out, which costs a tick that is not timed."""

    def __init__(
        self, engine: StepEngine, plan: CalibrationPlan, context: int, clock: Callable[[], float]
    ) -> None:
        self._sampling = plan.sampling
        self._prompt = tuple(_FIRST_TOKEN + index % _NUM_TOKENS for index in range(context))
        self._room = engine.capacity - context
        self._clock = clock
        self._drafter = _FixedDrafter()
        self._scheduler = Scheduler(
            _HeldWindow(engine, plan.window),
            SchedulerConfig(max_rows=1),
            PromptLookup(lambda end_ids: self._drafter),
            restore_prefix=lambda tokens, window: len(tokens) - 1,
        )
        self._text = PlainText()

    def tick(self, kind: int) -> float:
        """Seconds of one tick of this kind."""
        self.make_room(max(kind, 1))
        self._drafter.num_proposals = max(kind - 1, 0)
        began = self._clock()
        self._scheduler.tick()
        return self._clock() - began

    def make_room(self, num_tokens: int) -> None:
        """Let the next ticks emit so many tokens."""
        emitted = len(self._text.token_ids)
        if self._scheduler.num_running and emitted + num_tokens + 2 <= self._room:
            return
        self.end()
        self._text = PlainText()
        self._drafter.num_proposals = 1
        self._scheduler.add(Request(0, self._prompt, self._room, self._sampling, self._text))
        self._scheduler.tick()

    def end(self) -> None:
        """Nothing is left in flight."""
        self._scheduler.cancel(0)
        while self._scheduler.has_work:
            self._scheduler.tick()


def _spread(times: Sequence[float]) -> float:
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [1.0, 1.0, 1.0]
    return quartiles[2] / quartiles[0]


class _FixedDrafter:
    """Proposes `num_proposals` tokens when asked; none lets plain steps pipeline."""

    def __init__(self) -> None:
        self.round_costs: tuple[float, ...] | None = None
        self.num_proposals = 0
        self._asks = 0

    def start(self, prompt_tokens: Sequence[int], first_token: int) -> None:
        """Nothing to learn."""

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

    @property
    def last_ask_paused(self) -> bool:
        return False

    def draft_block(self, budget: int) -> list[int]:
        self._asks += 1
        first = _FIRST_TOKEN + self._asks % _NUM_TOKENS
        return list(range(first, first + min(budget, self.num_proposals)))

    def retract_draft(self, draft: Sequence[int]) -> None:
        """Nothing was counted."""

    def accept_verified_tokens(
        self, draft: Sequence[int], accepted: int, emitted: Sequence[int]
    ) -> None:
        """Nothing to learn."""

    def pipelines_plain_rounds(self) -> bool:
        return self.num_proposals == 0


class _HeldWindow:
    """The engine with one window, which is not given back between one dummy row and the next."""

    def __init__(self, engine: StepEngine, window: int) -> None:
        self.num_windows = 1
        self.capacity = engine.capacity
        self._engine = engine
        self._window = window

    def submit(self, plan: StepPlan) -> StepHandle:
        rows = tuple(replace(row, window=self._window) for row in plan.rows)
        return self._engine.submit(replace(plan, rows=rows))

    def release_window(self, window: int, first: int = 0) -> None:
        """Its noise is needed again."""

    def close(self) -> None:
        """Not ours to close."""
