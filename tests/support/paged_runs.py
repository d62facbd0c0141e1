"""What the tests of prefix reuse share: scripted engines with a block pool, and runs over them."""

from __future__ import annotations

from collections.abc import Callable

from support.fakes import ScriptedEngine
from support.scheduler_runs import Run
from surefoot.cache.budget import KvBudget
from surefoot.cache.prefix_index import BlockHash, blake2b_key
from surefoot.config import SchedulerConfig
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.storage import RowStorage


def paged_engine(
    num_windows: int = 2, capacity: int = 256, num_blocks: int = 64, vocab: int = 50
) -> ScriptedEngine:
    return ScriptedEngine(num_windows, capacity, vocab=vocab, num_blocks=num_blocks)


def paged_storage(
    engine: ScriptedEngine, total: int | None = None, block_hash: BlockHash = blake2b_key
) -> RowStorage:
    """`total`: blocks for windows and pool together."""
    return RowStorage(engine, KvBudget(total), PrefixCache(engine, "model", block_hash))


def paged_run(
    engine: ScriptedEngine,
    *,
    total: int | None = None,
    config: SchedulerConfig | None = None,
    lookup: PromptLookup | None = None,
    block_hash: BlockHash = blake2b_key,
    clock: Callable[[], float] = lambda: 0.0,
) -> Run:
    return Run(engine, config, lookup, paged_storage(engine, total, block_hash), clock)


def cached(run: Run, request_id: int) -> int:
    """Prompt tokens that a finished request did not compute."""
    return run.finished(request_id).timings.cache_n


def num_fed(engine: ScriptedEngine, request_id: int) -> int:
    """Tokens that all steps fed for a request."""
    rows = [row for plan in engine.plans for row in plan.rows if row.row_id == request_id]
    return sum(row.num_fed for row in rows)
