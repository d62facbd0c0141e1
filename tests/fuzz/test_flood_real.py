"""The same clients against a real engine over a tiny model, with prefix reuse and drafts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.flooding import Tally, Visitor, in_threads, send_bad
from support.flood_runs import FloodedServer, assert_clean, flooded
from support.tiny_models import text_model
from surefoot.cache.budget import KvBudget
from surefoot.config import EngineConfig, SchedulerConfig
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf
from surefoot.output.stop_text import RowText
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage
from surefoot.speculation.config import PromptLookupConfig
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

NUM_THREADS, CAPACITY = 4, 256


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FloodedServer]:
    folder = tmp_path_factory.mktemp("flooded")
    model = load_gguf(text_model().write(folder / "tiny.gguf"))
    tokenizer = Tokenizer.from_gguf_metadata(model.metadata)
    template = ChatTemplate.from_gguf_metadata(model.metadata)
    assert template is not None
    config = EngineConfig(num_windows=2, capacity=CAPACITY, num_blocks=32, num_threads=1)
    engine = Engine(model.spec, model.weights, model.fingerprint, folder / "graphs", config)
    scheduler = Scheduler(
        engine,
        SchedulerConfig(max_rows=2, chunk_busy=16, chunk_alone=16),
        PromptLookup.from_config(PromptLookupConfig()),
        storage=RowStorage(engine, KvBudget(None), PrefixCache(engine, model.fingerprint)),
    )
    with flooded(
        scheduler,
        tokenizer=tokenizer,
        encode_chat=lambda messages: template.encode_chat(tokenizer, messages),
        make_text=lambda stop: RowText(tokenizer, tuple(stop)),
        context_length=CAPACITY,
    ) as server:
        yield server
    engine.close()


def test_sixty_clients_that_leave(live: FloodedServer) -> None:
    tally = Tally()

    def visit(seed: int) -> None:
        Visitor(live.url, seed, max_prompt=150, max_tokens=60).visit(tally)

    in_threads(visit, range(60), NUM_THREADS)
    assert_clean(live)
    assert live.account.num_cancelled > 0
    assert live.account.num_cancelled < len(live.account.accepted)
    assert tally.num_faults == 0, tally.faults


def test_bad_requests(live: FloodedServer) -> None:
    tally = Tally()
    in_threads(lambda seed: send_bad(live.url, seed, tally), range(150), NUM_THREADS)
    assert_clean(live)
    assert (tally.num_faults, tally.server_errors) == (0, 0), tally.faults
