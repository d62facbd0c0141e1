"""Measuring what steps cost: the real scheduler over the real engine, one dummy row.

Every figure is a tick's wall time, so the scheduler's own work counts, not the forward alone. The
row's context is noise written straight into its window, so a bucket costs no prefill.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surefoot.config import SchedulerConfig
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.core.step import StepEngine
from surefoot.scheduling.prompt_lookup import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.speculation.costs import CostBucket, StepCosts

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, seed=1)
"""Common settings for sampled chat: a draw with the top-p filter, the dearest of the filters."""

START_UP_CONTEXTS = (256, 1024)
START_UP_ROUNDS = 3
"""Measured ticks of each kind at start-up: a few tens of milliseconds each, a second and a half
in all with the default model on two cores; `surefoot calibrate` takes more."""

_PIPELINED = 0
_SYNCHRONOUS = -1
"""Kinds of tick beside verify rounds, which are named by their width (2 and more)."""

_TICKS = 2
"""Ticks of one measurement; the first, which finds other shapes in the caches, is not counted."""

_FIRST_TOKEN, _NUM_TOKENS = 17, 200


class CalibratedEngine(StepEngine, Protocol):
    """An engine whose windows can be filled with noise."""

    def fill_window(self, window: int, length: int) -> None: ...


@dataclass(slots=True)
class _FixedDrafter:
    """Proposes `num_proposals` tokens at every ask; none means it pipelines."""

    num_proposals: int
    round_costs: tuple[float, ...] | None = None
    _asks: int = field(default=0)

    def start(self, prompt_tokens: Sequence[int], first_token: int) -> None:
        """Nothing to learn."""

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        """Nothing to learn."""

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
    """The engine, with a window that is not given back between one dummy row and the next."""

    def __init__(self, engine: StepEngine) -> None:
        self.num_windows = engine.num_windows
        self.capacity = engine.capacity
        self.submit = engine.submit

    def release_window(self, window: int) -> None:
        """Its noise is needed again."""

    def close(self) -> None:
        """Not ours to close."""


def fits(context: int, widest: int, capacity: int) -> bool:
    """A window holds `context` tokens and what one measurement of up to `widest` appends: rounds
    that land whole, or a few plain steps."""
    return context + _TICKS * max(widest, 2) + 4 <= capacity


def measure_step_costs(
    engine: CalibratedEngine,
    *,
    name: str,
    source: str,
    contexts: Iterable[int],
    widths: Sequence[int],
    sampling: SamplingParams,
    clock: Callable[[], float],
    rounds: int = START_UP_ROUNDS,
) -> StepCosts:
    """Medians over `rounds` interleaved measurements of each kind of tick, per context that fits
    the engine's windows. `widths` lists the verify widths to measure, 2 and up; width 1 is the
    synchronous plain step. The engine must be idle."""
    buckets = []
    for context in contexts:
        if not fits(context, max(widths), engine.capacity):
            continue
        kinds = [_PIPELINED, _SYNCHRONOUS, *widths]
        seconds: dict[int, list[float]] = {kind: [] for kind in kinds}
        engine.fill_window(0, context)
        held = _HeldWindow(engine)
        for kind in kinds:
            _run_ticks(held, context, kind, sampling, clock, 1)
        for _ in range(rounds):
            for kind in kinds:
                seconds[kind] += _run_ticks(held, context, kind, sampling, clock, _TICKS)[1:]
        medians = {kind: statistics.median(times) for kind, times in seconds.items()}
        verify = {1: medians[_SYNCHRONOUS]} | {width: medians[width] for width in widths}
        buckets.append(CostBucket(context, medians[_PIPELINED], medians[_SYNCHRONOUS], verify))
        engine.release_window(0)
    return StepCosts(name, source, tuple(buckets))


def _run_ticks(
    engine: StepEngine,
    context: int,
    kind: int,
    sampling: SamplingParams,
    clock: Callable[[], float],
    count: int,
) -> list[float]:
    """Wall seconds of `count` ticks of one kind, after the ticks that lead up to them."""
    drafter = _FixedDrafter(max(kind - 1, 0))
    scheduler = Scheduler(
        engine,
        SchedulerConfig(max_rows=1, lookahead=kind == _PIPELINED),
        PromptLookup(lambda end_ids: drafter),
        restore_prefix=lambda tokens, window: len(tokens) - 1,
    )
    prompt = tuple(_FIRST_TOKEN + index % _NUM_TOKENS for index in range(context))
    # Enough room that no round is cut short; the row is cancelled when the ticks are done.
    tokens = (count + 3) * (max(kind, 1) + 1)
    scheduler.add(Request(0, prompt, tokens, sampling, PlainText()))
    # The chunk that samples the first token; for a pipelined tick also the synchronous one that
    # primes the first step.
    for _ in range(2 if kind == _PIPELINED else 1):
        scheduler.tick()
    seconds = []
    for _ in range(count):
        began = clock()
        scheduler.tick()
        seconds.append(clock() - began)
    scheduler.cancel(0)
    while scheduler.has_work:
        scheduler.tick()
    return seconds
