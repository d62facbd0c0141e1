"""Prefix reuse with the real kernels. In the deterministic mode a hit, a preempted row and a
speculated one give the very bits of a row that computes all of its tokens alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scheduler_runs import GREEDY, MAX_TICKS, SEEDED, request
from support.tiny_models import TinyModel
from surefoot.cache.budget import KvBudget
from surefoot.config import EngineConfig, SchedulerConfig
from surefoot.core.events import Event, Finished, TokensEmitted
from surefoot.core.request import Request, SamplingParams, TokenLogprobs
from surefoot.core.step import BlockSource
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

PROMPT = tuple(7 + (index * 37) % 200 for index in range(70))
TAILS = ((), (3,), (9, 8, 7) * 7)
WITH_LOGPROBS = SamplingParams(temperature=0.0, logprobs=2)


def tiny_engine(folder: Path) -> Engine:
    model = load_gguf(TinyModel().write(folder / "tiny.gguf"))
    config = EngineConfig(
        num_windows=3, capacity=256, num_threads=1, deterministic=True, num_blocks=64
    )
    return Engine(model.spec, model.weights, model.fingerprint, folder / "graphs", config)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = tiny_engine(tmp_path_factory.mktemp("tiny"))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The same model in windows of its own: a scheduler counts on what it left in its windows."""
    engine = tiny_engine(tmp_path_factory.mktemp("other"))
    yield engine
    engine.close()


class RealRun:
    """A scheduler over the real engine. `paged` False: every row computes all of its tokens."""

    def __init__(self, engine: Engine, *, paged: bool, max_rows: int = 3, **config: object) -> None:
        prefixes = PrefixCache(engine, "tiny") if paged else None
        lookup = PromptLookup.from_config(PromptLookupConfig(policy=DraftPolicy.GRADED))
        self.scheduler = Scheduler(
            engine,
            SchedulerConfig(max_rows, **config),  # type: ignore[arg-type]
            lookup,
            storage=RowStorage(engine, KvBudget(), prefixes),
        )
        self.events: list[Event] = []

    def add(self, *requests: Request) -> RealRun:
        for each in requests:
            self.scheduler.add(each)
        return self

    def tick(self, times: int) -> RealRun:
        for _ in range(times):
            self.events += self.scheduler.tick()
            self.scheduler.check()
        return self

    def finish(self) -> RealRun:
        for _ in range(MAX_TICKS):
            if not self.scheduler.has_work:
                return self
            self.tick(1)
        raise AssertionError("the scheduler never came to an end")

    def emitted(self, request_id: int) -> list[TokensEmitted]:
        return [
            event
            for event in self.events
            if isinstance(event, TokensEmitted) and event.request_id == request_id
        ]

    def tokens(self, request_id: int) -> list[int]:
        return [token for event in self.emitted(request_id) for token in event.token_ids]

    def logprobs(self, request_id: int) -> list[TokenLogprobs]:
        return [entry for event in self.emitted(request_id) for entry in event.logprobs or ()]

    def num_cached(self, request_id: int) -> int:
        ends = {event.request_id: event for event in self.events if isinstance(event, Finished)}
        return ends[request_id].timings.cache_n


def alone(engine: Engine, one: Request) -> RealRun:
    """The request with nobody beside it and nothing known."""
    return RealRun(engine, paged=False).add(one).finish()


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_a_hit_equals_a_miss_bit_for_bit(
    engine: Engine, other: Engine, sampling: SamplingParams
) -> None:
    run = RealRun(engine, paged=True)
    for number, tail in enumerate(TAILS, 1):
        run.add(request(number, (*PROMPT, *tail), 40, sampling)).finish()
        lone = alone(other, request(number, (*PROMPT, *tail), 40, sampling))
        assert run.tokens(number) == lone.tokens(number)
    assert [run.num_cached(number) for number in (1, 2, 3)] == [0, 64, 64]


def test_log_probabilities_of_a_hit_are_those_of_a_miss(engine: Engine, other: Engine) -> None:
    run = RealRun(engine, paged=True)
    for number in (1, 2, 3):
        run.add(request(number, PROMPT, 12, WITH_LOGPROBS)).finish()
    lone = alone(other, request(1, PROMPT, 12, WITH_LOGPROBS))
    assert run.num_cached(3) == 64
    assert run.logprobs(1) == run.logprobs(2) == run.logprobs(3) == lone.logprobs(1)


def test_a_preempted_row_equals_an_uninterrupted_one(engine: Engine, other: Engine) -> None:
    run = RealRun(engine, paged=True, max_rows=1, preemption=True)
    low, high = request(1, PROMPT, 50, SEEDED), request(2, PROMPT[:40], 10, GREEDY, priority=1)
    run.add(low).tick(15)
    assert 1 < len(run.tokens(1)) < 50
    run.add(high).finish()
    assert run.tokens(1) == alone(other, low).tokens(1)
    assert run.tokens(2) == alone(other, high).tokens(2)
    assert run.num_cached(2) == 32


def test_rows_that_share_a_beginning_side_by_side(engine: Engine, other: Engine) -> None:
    run = RealRun(engine, paged=True).add(request(1, PROMPT, 4)).finish()
    rows = [request(number, (*PROMPT, number), 30, SEEDED) for number in (2, 3, 4)]
    run.add(*rows).tick(6)
    run.scheduler.cancel(3)
    run.finish()
    for one in rows:
        expected, got = alone(other, one).tokens(one.request_id), run.tokens(one.request_id)
        assert got == expected[: len(got)]
        assert len(got) == 30 or one.request_id == 3
        assert run.num_cached(one.request_id) == 64


def test_a_chat_that_grows_gives_the_texts_of_a_fresh_server(engine: Engine, other: Engine) -> None:
    run = RealRun(engine, paged=True)
    history = list(PROMPT)
    known = []
    for turn in range(1, 6):
        one = request(turn, history, 12)
        run.add(one).finish()
        assert run.tokens(turn) == alone(other, one).tokens(turn)
        known.append(run.num_cached(turn))
        history += [*run.tokens(turn), 3, 4, turn]
    assert known == [0, 80, 96, 96, 112]


def test_copies_out_of_bounds_are_refused_before_they_are_queued(engine: Engine) -> None:
    with pytest.raises(AssertionError):
        engine.store_blocks(0, [(250, 0)])
    with pytest.raises(AssertionError):
        engine.store_blocks(0, [(0, 64)])
    with pytest.raises(AssertionError):
        engine.load_blocks(0, 16, [BlockSource(0, 64, None)])
    with pytest.raises(AssertionError):
        engine.load_blocks(0, 16, [BlockSource(16, 0, 1)])
    with pytest.raises(AssertionError):
        engine.load_blocks(0, engine.capacity + 1, [])
