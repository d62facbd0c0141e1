"""The default model, deterministic: a prompt whose beginning is known gives the very tokens and
log probabilities that it gives when it is read whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.real_runs import CAPACITY, GREEDY, SEEDED, TELL, chat_request
from surefoot.cache.budget import KvBudget
from surefoot.config import EngineConfig, SchedulerConfig
from surefoot.core.events import Event, Finished, TokensEmitted
from surefoot.core.request import Request
from surefoot.engine.engine import Engine
from surefoot.loading.model import LoadedModel
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage


@pytest.fixture(scope="module")
def paged(default_model: LoadedModel, graphs: Path) -> Iterator[Engine]:
    model = default_model
    config = EngineConfig(num_windows=2, capacity=CAPACITY, deterministic=True, num_blocks=16)
    engine = Engine(model.spec, model.weights, model.fingerprint, graphs, config)
    yield engine
    engine.close()


def run_one(scheduler: Scheduler, request: Request) -> tuple[list[TokensEmitted], Finished]:
    scheduler.add(request)
    events: list[Event] = []
    while scheduler.has_work:
        events += scheduler.tick()
        scheduler.check()
    end = events.pop()
    assert isinstance(end, Finished)
    return [event for event in events if isinstance(event, TokensEmitted)], end


def test_a_hit_is_bit_identical_to_a_miss(paged: Engine, default_model: LoadedModel) -> None:
    storage = RowStorage(paged, KvBudget(), PrefixCache(paged, default_model.fingerprint))
    scheduler = Scheduler(paged, SchedulerConfig(max_rows=2), storage=storage)
    for params in (replace(GREEDY, logprobs=3), replace(SEEDED, logprobs=3)):
        asked = chat_request(default_model, 1, TELL, 10, params)
        salted = replace(asked, cache_salt=str(params.temperature))
        missed, miss = run_one(scheduler, salted)
        found, hit = run_one(scheduler, salted)
        whole = len(asked.prompt_ids) - 1
        assert (miss.timings.cache_n, hit.timings.cache_n) == (0, whole // 16 * 16)
        assert hit.timings.cache_n >= 32
        assert [event.token_ids for event in found] == [event.token_ids for event in missed]
        assert [event.logprobs for event in found] == [event.logprobs for event in missed]
