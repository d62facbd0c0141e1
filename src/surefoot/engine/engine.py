"""The engine: plans in, results out, on ONNX Runtime.

It keeps no counter about a row. What it does remember is the last step's tokens, so that a
`FromStep` feed can be wired without the scheduler having read them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.config import EngineConfig
from surefoot.core.step import BlockSource, FromStep, RowPlan, RowResult, StepPlan, StepResult
from surefoot.engine.block_memory import BlockMemory
from surefoot.engine.executor import Executor, PendingStep
from surefoot.engine.graph_cache import temporary
from surefoot.engine.kv_memory import KvMemory
from surefoot.engine.mapped_pages import give_back_mapped
from surefoot.engine.packed_graph import PackedGraph, discard_packed, open_packed
from surefoot.engine.padding import attention_tiles, dummy_counts, max_dummies, pad_asked
from surefoot.engine.sampling import draw_token
from surefoot.engine.session import Forward, JointSession
from surefoot.errors import EngineError
from surefoot.graph.spec import ModelSpec, WeightSource

logger = logging.getLogger(__name__)

MAX_JOINT_ROWS = 8
"""Rows of one forward; a plan with more runs as several. Each number of rows needs a session, and
past eight rows the linear layers dominate, which a second forward reads again for little."""

HANG_S = 10.0
"""How long a forward that hangs may hold up the end of the program."""

NO_MEMORY = re.compile(r"Failed to allocate memory|bad[ _]alloc", re.IGNORECASE)
"""How ONNX Runtime's arena and the C++ library say it."""

_DUMMY_TOKEN = 0


@dataclass(frozen=True, slots=True)
class _LastStep:
    step_id: int
    tokens: dict[int, int]


class Engine:
    """A `StepEngine` over one model.

    `cache_root` holds the packed graphs. Raises `ModelError` when the weights cannot be read.
    With `deterministic`, dummy tokens ride behind a row's own (`padding`), their KV positions
    overwritten by the next step, so results do not depend on how rows and tokens are grouped.
    The session for more than one row is opened when so many first run together (a third of a
    second, once): who serves one stream never holds its pages.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: WeightSource,
        fingerprint: str,
        cache_root: Path,
        config: EngineConfig,
    ) -> None:
        self.spec = spec
        self.config = config
        self._tiles = attention_tiles(spec.head_dim) if config.deterministic else ()
        room = max_dummies(self._tiles) if config.deterministic else 0
        self._memory = KvMemory(
            spec, config.num_windows + config.num_spare_windows, config.capacity + room
        )
        self._blocks = BlockMemory(spec, config.num_blocks)
        self._graph, first = self._open(weights, fingerprint, cache_root)
        self._sessions = {1: first}
        self._joint_rows = MAX_JOINT_ROWS
        self._last = _LastStep(-1, {})
        self._executor = Executor("surefoot-engine")

    @property
    def num_windows(self) -> int:
        return self.config.num_windows

    @property
    def capacity(self) -> int:
        return self.config.capacity

    def submit(self, plan: StepPlan) -> PendingStep:
        """Queue the step; `result()` waits for it. A failing forward fails its rows only."""
        return PendingStep(self._executor.submit(lambda: self._run(plan)))

    def release_window(self, window: int, first: int = 0) -> None:
        """Give the memory of positions from `first` on back once the steps submitted before have
        run."""
        self._executor.post(lambda: self._memory.release(window, first))

    @property
    def num_blocks(self) -> int:
        return self.config.num_blocks

    def store_blocks(self, window: int, copies: Sequence[tuple[int, int]]) -> None:
        """Copy window positions into blocks once the steps submitted before have run."""
        for position, block in copies:
            assert 0 <= position <= self.capacity - BLOCK_TOKENS, (position, self.capacity)
            assert 0 <= block < self.num_blocks, (block, self.num_blocks)
        self._executor.post(lambda: self._store_blocks(window, copies))

    def load_blocks(self, window: int, length: int, sources: Sequence[BlockSource]) -> None:
        """Copy the sources into the window before the steps submitted after."""
        assert length <= self.capacity, (length, self.capacity)
        for source in sources:
            assert 0 <= source.position <= length - BLOCK_TOKENS, (source, length)
            assert 0 <= source.block < self.num_blocks, (source, self.num_blocks)
        if sources:
            self._executor.post(lambda: self._load_blocks(window, sources))

    def release_blocks(self, blocks: Sequence[int]) -> None:
        """Give the blocks' memory back once what was submitted before has run."""
        blocks = tuple(blocks)
        self._executor.post(lambda: self._blocks.release(blocks))

    def fill_window(self, window: int, length: int) -> None:
        """Make `length` positions of a free window valid noise, for measuring steps over them."""
        self._executor.submit(lambda: self._memory.fill(window, length)).result()

    def close(self) -> None:
        if not self._executor.close(HANG_S):
            logger.error("a forward still runs after %g s: it is left behind", HANG_S)
        self._graph.close()

    def _store_blocks(self, window: int, copies: Sequence[tuple[int, int]]) -> None:
        array = self._memory.array(window)
        for position, block in copies:
            self._blocks.store(array, position, block)

    def _load_blocks(self, window: int, sources: Sequence[BlockSource]) -> None:
        array = self._memory.array(window)
        for source in sources:
            if source.window is None:
                self._blocks.load(array, source.position, source.block)
            else:
                kept = slice(source.position, source.position + BLOCK_TOKENS)
                array[:, :, kept] = self._memory.array(source.window)[:, :, kept]

    def _open(
        self, weights: WeightSource, fingerprint: str, cache_root: Path
    ) -> tuple[PackedGraph, JointSession]:
        """The packed graph and its one-row session. A cached file that does not load is rebuilt;
        where what is missing may not be written all is made in a temporary folder."""
        level, threads = self.config.accuracy_level, self.config.num_threads
        for attempt in range(2):
            self._graph = open_packed(cache_root, fingerprint, self.spec, weights, level, threads)
            try:
                return self._graph, self._open_session(1)
            except (OSError, MemoryError) as error:
                self._graph.close()
                if attempt or isinstance(error, MemoryError):
                    raise EngineError(f"the packed graph cannot be opened: {error}") from error
                cache_root = temporary(error)
            except Exception as error:
                self._graph.close()
                reason = str(error).splitlines()[0]
                if attempt:
                    raise EngineError(f"the packed graph does not load: {reason}") from error
                logger.warning("the cached graph does not load (%s): building it anew", reason)
                discard_packed(cache_root, fingerprint, level)
        raise AssertionError("unreachable")

    def _session(self, num_rows: int) -> JointSession:
        if num_rows not in self._sessions:
            try:
                self._sessions[num_rows] = self._open_session(num_rows)
            except Exception as error:
                logger.warning("the graph for %d rows does not load: %s", num_rows, error)
                self._graph.forget_rows(num_rows)
                self._sessions[num_rows] = self._open_session(num_rows)
        return self._sessions[num_rows]

    def _open_session(self, num_rows: int) -> JointSession:
        session = JointSession(
            self._graph.rows_path(num_rows),
            num_rows,
            self.config.num_threads,
            self._memory,
            self.spec.num_layers,
        )
        give_back_mapped(self._graph.directory)
        return session

    def _run(self, plan: StepPlan) -> StepResult:
        began = time.perf_counter()
        rows = sorted(plan.rows, key=lambda row: row.window)
        results: dict[int, RowResult] = {}
        while rows:
            size = self._rows_of_a_forward(len(rows))
            results |= self._run_group(rows[:size])
            rows = rows[size:]
        self._last = _LastStep(
            plan.step_id,
            {row_id: result.tokens[-1] for row_id, result in results.items() if result.tokens},
        )
        ordered = tuple(results[row.row_id] for row in plan.rows)
        return StepResult(plan.step_id, ordered, time.perf_counter() - began)

    def _rows_of_a_forward(self, num_rows: int) -> int:
        """How many of so many go into the next one: one, ever after, once a graph for several could
        be neither opened nor made (a cache that may not be written, say)."""
        size = min(num_rows, self._joint_rows)
        if size > 1:
            try:
                self._session(size)
            except Exception as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                logger.error("rows run one by one: no graph for %d of them (%s)", size, reason)
                self._joint_rows = size = 1
        return size

    def _run_group(self, rows: Sequence[RowPlan]) -> dict[int, RowResult]:
        """One forward for up to `MAX_JOINT_ROWS` rows."""
        feeds: dict[int, list[int]] = {}
        results: dict[int, RowResult] = {}
        for row in rows:
            feed = self._resolve(row)
            if feed is None:
                error = "the step it follows gave this row no token"
                results[row.row_id] = RowResult(row.row_id, (), error=error)
            else:
                feeds[row.row_id] = feed
        live = [row for row in rows if row.row_id in feeds]
        if live:
            try:
                results |= self._forward(live, [feeds[row.row_id] for row in live])
            except Exception as error:
                logger.exception("a forward failed")
                results |= {row.row_id: _failure(row, error) for row in live}
        return results

    def _resolve(self, row: RowPlan) -> list[int] | None:
        """The host tokens to feed; None when a `FromStep` has nothing to refer to."""
        if not isinstance(row.feed, FromStep):
            return list(row.feed)
        if row.feed.step_id != self._last.step_id or row.row_id not in self._last.tokens:
            return None
        return [self._last.tokens[row.row_id]]

    def _forward(self, rows: list[RowPlan], feeds: list[list[int]]) -> dict[int, RowResult]:
        asked: list[int] = []
        offset = 0
        fed = self._padded(feeds)
        for row, feed, padded in zip(rows, feeds, fed, strict=True):
            asked.extend(range(offset + row.sample_from, offset + len(feed)))
            offset += len(padded)
        with_logits = any(
            row.sampling.params.needs_logits and row.sample_from < row.num_fed for row in rows
        )
        forward = self._session(len(rows)).run(
            tuple(row.window for row in rows),
            fed,
            [row.start for row in rows],
            pad_asked(asked or [0]) if self.config.deterministic else asked or [0],
            with_logits,
        )
        results: dict[int, RowResult] = {}
        first = 0
        for row, feed in zip(rows, feeds, strict=True):
            results[row.row_id] = _answer(row, feed, forward, first)
            first += len(feed) - row.sample_from
        return results

    def _padded(self, feeds: list[list[int]]) -> list[list[int]]:
        if not self.config.deterministic:
            return feeds
        dummies = dummy_counts([len(feed) for feed in feeds], self._tiles)
        return [feed + [_DUMMY_TOKEN] * count for feed, count in zip(feeds, dummies, strict=True)]


def _failure(row: RowPlan, error: Exception) -> RowResult:
    """ONNX Runtime has no exception of its own for memory that it could not get."""
    no_memory = isinstance(error, MemoryError) or NO_MEMORY.search(str(error)) is not None
    message = f"the forward failed ({type(error).__name__})"
    return RowResult(row.row_id, (), error=message, out_of_memory=no_memory)


def _answer(row: RowPlan, feed: list[int], forward: Forward, first: int) -> RowResult:
    """The row's tokens, drawn from the forward's asked positions from index `first` on."""
    count = len(feed) - row.sample_from
    if not forward.finite[first : first + count].all():
        return RowResult(row.row_id, (), error="the logits are not finite")
    params = row.sampling.params
    if not params.needs_logits:
        tokens = tuple(int(token) for token in forward.next_tokens[first : first + count])
        return RowResult(row.row_id, tokens)
    assert forward.logits is not None or count == 0
    drawn = [
        draw_token(
            forward.logits[first + index],
            row.sampling,
            _learned(row, feed, row.sample_from + index),
            row.start + row.sample_from + index + 1,
        )
        for index in range(count)
        if forward.logits is not None
    ]
    logprobs = tuple(entry for _, entry in drawn if entry is not None)
    return RowResult(
        row.row_id,
        tuple(token for token, _ in drawn),
        logprobs if params.logprobs is not None else None,
    )


def _learned(row: RowPlan, feed: list[int], fed_index: int) -> list[int]:
    """Emitted or drafted tokens up to `fed_index` that `row.sampling.output_ids` lacks: a token
    wired from the step before, or the drafts (whatever is fed behind `sample_from`)."""
    if isinstance(row.feed, FromStep):
        return feed
    return feed[row.sample_from + 1 : fed_index + 1]
