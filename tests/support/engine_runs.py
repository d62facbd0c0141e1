"""Driving the real engine, or its joint forward alone, one plan at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.core.request import SamplingParams, TokenLogprobs
from surefoot.core.step import FromStep, RowPlan, RowResult, RowSampling, StepPlan
from surefoot.engine.engine import Engine
from surefoot.engine.kv_memory import KvMemory
from surefoot.engine.packed_graph import open_packed
from surefoot.engine.session import JointSession
from surefoot.loading.model import LoadedModel

GREEDY = SamplingParams(temperature=0.0)
ASKING = SamplingParams(temperature=0.0, logprobs=20)
SAMPLED = SamplingParams(temperature=0.8, top_k=20, top_p=0.95, min_p=0.02, seed=7, logprobs=20)

Answer = tuple[int, TokenLogprobs | None]
"""The token drawn after one fed position, and its log probabilities."""

Companions = Callable[[int], Sequence[RowPlan]]
"""The rows that share the n-th step of a run."""


def row(
    feed: Sequence[int] | FromStep,
    start: int = 0,
    *,
    window: int = 0,
    row_id: int | None = None,
    sample_from: int = 0,
    params: SamplingParams = ASKING,
    prompt_ids: Sequence[int] = (),
    output_ids: Sequence[int] = (),
) -> RowPlan:
    """One row's part of a step; its id is its window's number unless given."""
    return RowPlan(
        window if row_id is None else row_id,
        window,
        feed if isinstance(feed, FromStep) else tuple(feed),
        start,
        sample_from,
        RowSampling(params, tuple(prompt_ids), tuple(output_ids)),
    )


class Steps:
    """Numbers the steps of one engine and reads each before the next."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._ids = itertools.count()

    def run(self, *rows: RowPlan) -> tuple[RowResult, ...]:
        return self.engine.submit(StepPlan(next(self._ids), rows)).result().rows

    def one(self, plan: RowPlan) -> RowResult:
        """The only row's result; it must not have failed."""
        (result,) = self.run(plan)
        assert result.error is None, result
        return result

    def answers(
        self,
        ids: Sequence[int],
        widths: Sequence[int],
        *,
        window: int = 0,
        params: SamplingParams = ASKING,
        companions: Companions = lambda step: (),
    ) -> list[Answer]:
        """What follows each of `ids`, fed in pieces of `widths` (over and over), among others."""
        found: list[Answer] = []
        start = 0
        for step, width in enumerate(itertools.cycle(widths)):
            feed = ids[start : start + width]
            plan = row(feed, start, window=window, params=params)
            result = self.run(*companions(step), plan)[-1]
            assert result.error is None, result
            found += zip(result.tokens, result.logprobs or [None] * len(feed), strict=True)
            start += len(feed)
            if start == len(ids):
                return found
        raise AssertionError("widths are never empty")


class JointForward:
    """The joint forward of one model without an engine: logits of every fed position."""

    def __init__(
        self,
        model: LoadedModel,
        graphs: Path,
        *,
        accuracy_level: int = 1,
        num_windows: int = 1,
        capacity: int = 256,
        num_threads: int = 2,
    ) -> None:
        self._packed = open_packed(
            graphs, model.fingerprint, model.spec, model.weights, accuracy_level, num_threads
        )
        self.memory = KvMemory(model.spec, num_windows, capacity)
        self._num_layers = model.spec.num_layers
        self._num_threads = num_threads
        self._sessions: dict[int, JointSession] = {}

    def logits(
        self, *rows: tuple[int, Sequence[int], int], asked: Sequence[int] | None = None
    ) -> list[NDArray[np.float32]]:
        """Each row is `(window, ids, start)`; `[len(ids), vocab]` for each, or one array for the
        `asked` positions."""
        windows, feeds, starts = zip(*rows, strict=True)
        total = sum(len(feed) for feed in feeds)
        forward = self._session(len(rows)).run(
            windows, feeds, starts, list(range(total)) if asked is None else asked, True
        )
        assert forward.logits is not None
        assert forward.finite.all()
        np.testing.assert_array_equal(forward.next_tokens, forward.logits.argmax(axis=-1))
        logits = forward.logits.copy()
        if asked is not None:
            return [logits]
        return np.split(logits, np.cumsum([len(feed) for feed in feeds])[:-1])

    def _session(self, num_rows: int) -> JointSession:
        if num_rows not in self._sessions:
            self._sessions[num_rows] = JointSession(
                self._packed.rows_path(num_rows),
                num_rows,
                self._num_threads,
                self.memory,
                self._num_layers,
            )
        return self._sessions[num_rows]
