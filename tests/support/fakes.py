"""A scripted engine with `core.step.StepEngine`'s shape: every scheduler test runs without a model.

Its tokens are a pure function of what a row's window really holds, so a plan that feeds a wrong
token, or at a wrong place, changes the reply: batched = alone, speculated = plain and so on can be
asserted token for token. It also refuses plans that break the engine's contract.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.core.request import SamplingParams, TokenLogprobs
from surefoot.core.step import BlockSource, FromStep, RowPlan, RowResult, StepPlan, StepResult

TIMEOUT_S = 30.0
"""How long a blocked result waits before the test is called hung."""

Fault = Callable[[StepPlan, RowPlan], str | None]
"""An error for this row of this plan, or None. The row's window then holds nothing past `start`."""


def hashed_token(sequence: Sequence[int], params: SamplingParams, vocab: int) -> int:
    """The token after `sequence`: pseudo-random, by the whole sequence; a sampled row's also by
    its seed, choice and the position."""
    key = b"" if params.greedy else f"{params.seed}/{params.choice}/{len(sequence)}".encode()
    data = b",".join(str(token).encode() for token in sequence)
    return int.from_bytes(blake2b(data, digest_size=8, key=key).digest(), "big") % vocab


@dataclass(slots=True)
class Window:
    """`tokens` are those whose KV the window holds; `row_id` wrote them."""

    row_id: int | None = None
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ScriptedHandle:
    outcome: StepResult | Exception
    ready: threading.Event
    waited: threading.Event

    def result(self) -> StepResult:
        self.waited.set()
        assert self.ready.wait(TIMEOUT_S), "no test released this step"
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class ScriptedEngine:
    """`replies` scripts what follows a prompt; text off the script, and rows without one, get
    hashed tokens below `vocab`. `fault` injects errors row by row.

    `blocks` holds, for each stored block, the tokens from the sequence's beginning to the block's
    end: what its KV depends on. `loaded` records `(window, positions)` of each load that brings
    any, `copied` counts the blocks copied by them. `touched` is how many positions of each window
    have memory.
    `plans` and `released` record what was asked, `log` both in order. With `manual` True a result
    is ready only after `finish_step()`; `waiting` is set once somebody blocks on it.
    """

    def __init__(
        self,
        num_windows: int = 4,
        capacity: int = 4096,
        *,
        vocab: int = 50,
        replies: Mapping[tuple[int, ...], Sequence[int]] | None = None,
        fault: Fault | None = None,
        manual: bool = False,
        num_blocks: int = 0,
    ) -> None:
        self.num_windows = num_windows
        self.capacity = capacity
        self.vocab = vocab
        self.replies = dict(replies or {})
        self.fault = fault
        self.manual = manual
        self.plans: list[StepPlan] = []
        self.released: list[int] = []
        self.log: list[str] = []
        self.windows = [Window() for _ in range(num_windows)]
        self.touched = [0] * num_windows
        self.num_blocks = num_blocks
        self.blocks: dict[int, list[int]] = {}
        self.loaded: list[tuple[int, int]] = []
        self.copied = 0
        self.closed = False
        self.dead: Exception | None = None
        self.dead_on_result: Exception | None = None
        self.wrong_length_for: set[int] = set()
        self._last: tuple[int, dict[int, RowResult]] | None = None
        self._handles: list[ScriptedHandle] = []
        self._num_finished = 0
        self._lock = threading.Condition()

    def submit(self, plan: StepPlan) -> ScriptedHandle:
        assert not self.closed, "submit after close"
        if self.dead is not None:
            raise self.dead
        rows = tuple(self._run_row(plan, row) for row in plan.rows)
        self._last = plan.step_id, {row.row_id: row for row in rows}
        outcome = self.dead_on_result or StepResult(plan.step_id, rows, 0.001)
        handle = ScriptedHandle(outcome, threading.Event(), threading.Event())
        if not self.manual:
            handle.ready.set()
        with self._lock:
            self.plans.append(plan)
            self.log.append(f"step {plan.step_id}")
            self._handles.append(handle)
            self._lock.notify_all()
        return handle

    def release_window(self, window: int, first: int = 0) -> None:
        if self.dead is not None:
            raise self.dead
        assert 0 <= window < self.num_windows, window
        self.windows[window] = Window(None, self.windows[window].tokens[:first])
        self.touched[window] = min(self.touched[window], first)
        self.released.append(window)
        self.log.append(f"release {window}")

    def store_blocks(self, window: int, copies: Sequence[tuple[int, int]]) -> None:
        for position, block in copies:
            assert 0 <= block < self.num_blocks, (block, self.num_blocks)
            end = position + BLOCK_TOKENS
            assert position % BLOCK_TOKENS == 0, position
            assert end <= len(self.windows[window].tokens), (position, self.windows[window])
            self.blocks[block] = self.windows[window].tokens[:end]

    def load_blocks(self, window: int, length: int, sources: Sequence[BlockSource]) -> None:
        tokens = self.windows[window].tokens[:length]
        for source in sources:
            end = source.position + BLOCK_TOKENS
            content = self._content(source)
            assert len(content) == end, f"{source} holds {len(content)} tokens"
            tokens[source.position : end] = content[source.position :]
        for source in sources:
            beginning = self._content(source)[: source.position]
            assert beginning == tokens[: source.position], f"{source} follows another beginning"
        assert len(tokens) == length, f"window {window} holds {len(tokens)} of {length} tokens"
        self.windows[window] = Window(None, tokens)
        self.touched[window] = max(self.touched[window], length)
        if length:
            self.loaded.append((window, length))
        self.copied += len(sources)
        self.log.append(f"load {window}")

    def _content(self, source: BlockSource) -> list[int]:
        if source.window is None:
            return self.blocks[source.block]
        return self.windows[source.window].tokens[: source.position + BLOCK_TOKENS]

    def release_blocks(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.blocks.pop(block, None)

    @property
    def num_resident(self) -> int:
        """Blocks' worth of memory in use: of windows, and of blocks that were stored."""
        return sum(-(-touched // BLOCK_TOKENS) for touched in self.touched) + len(self.blocks)

    def close(self) -> None:
        self.closed = True
        for handle in self._handles:
            handle.ready.set()

    def finish_step(self) -> None:
        """Manual mode: wait until the next unfinished step is submitted, and let it be read."""
        with self._lock:
            submitted = self._lock.wait_for(
                lambda: len(self._handles) > self._num_finished, TIMEOUT_S
            )
            assert submitted, "no further step was submitted"
            self._handles[self._num_finished].ready.set()
            self._num_finished += 1

    def wait_until_read(self, step: int) -> None:
        """Wait until somebody asks for the result of the `step`-th submitted step."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self._handles) > step, TIMEOUT_S), step
        assert self._handles[step].waited.wait(TIMEOUT_S), f"nobody reads step {step}"

    def finish_all(self) -> None:
        """Leave manual mode."""
        self.manual = False
        for handle in self._handles:
            handle.ready.set()

    def next_token(self, sequence: Sequence[int], params: SamplingParams) -> int:
        """What a row whose window holds `sequence` samples."""
        for prompt, reply in self.replies.items():
            known = [*prompt, *reply]
            if len(prompt) <= len(sequence) < len(known) and known[: len(sequence)] == [*sequence]:
                return known[len(sequence)]
        return hashed_token(sequence, params, self.vocab)

    def _run_row(self, plan: StepPlan, row: RowPlan) -> RowResult:
        feed: tuple[int, ...]
        if isinstance(row.feed, FromStep):
            source = self._source_of(row)
            if source.error is not None:
                return RowResult(row.row_id, (), error=f"fed from a failed step: {source.error}")
            feed = (source.tokens[-1],)
        else:
            feed = row.feed
        window = self._checked_window(row)
        self.touched[row.window] = max(self.touched[row.window], row.end)
        del window.tokens[row.start :]
        error = self.fault(plan, row) if self.fault is not None else None
        if error is not None:
            return RowResult(row.row_id, (), error=error)
        return self._sample(row, window, feed)

    def _sample(self, row: RowPlan, window: Window, feed: tuple[int, ...]) -> RowResult:
        sampled: list[int] = []
        for index, token in enumerate(feed):
            window.tokens.append(token)
            if index >= row.sample_from:
                sampled.append(self.next_token(window.tokens, row.sampling.params))
        self._check_penalty_state(row, window, feed)
        if row.row_id in self.wrong_length_for:
            sampled.append(0)
        logprobs = None
        if row.sampling.params.logprobs is not None:
            logprobs = tuple(TokenLogprobs(-float(token)) for token in sampled)
        return RowResult(row.row_id, tuple(sampled), logprobs)

    def _checked_window(self, row: RowPlan) -> Window:
        assert 0 <= row.window < self.num_windows, row
        window = self.windows[row.window]
        if row.start == 0:
            window.row_id, window.tokens = row.row_id, []
        if window.row_id is None and window.tokens:
            window.row_id = row.row_id
        assert window.row_id == row.row_id, f"window {row.window} is {window.row_id}'s: {row}"
        assert row.start <= len(window.tokens), f"{len(window.tokens)} positions are valid: {row}"
        assert row.end <= self.capacity, row
        return window

    def _source_of(self, row: RowPlan) -> RowResult:
        assert isinstance(row.feed, FromStep)
        assert self._last is not None, row
        step_id, results = self._last
        assert row.feed.step_id == step_id, f"step {step_id} was submitted last: {row}"
        source = results[row.row_id]
        assert source.error is not None or source.tokens, f"nothing was sampled to feed: {row}"
        return source

    def _check_penalty_state(self, row: RowPlan, window: Window, feed: tuple[int, ...]) -> None:
        sampling = row.sampling
        if not sampling.params.has_penalties:
            assert (tuple(sampling.prompt_ids), sampling.output_ids) == ((), ()), row
            return
        known = [*sampling.prompt_ids, *sampling.output_ids]
        if row.sample_from == len(feed):
            held = len(window.tokens)
        elif isinstance(row.feed, FromStep):
            held = row.start
        else:
            held = row.start + row.sample_from + 1
        assert window.tokens[:held] == known[:held], row
        assert row.sample_from == len(feed) or held == len(known), (held, row)


def plan_table(plans: Sequence[StepPlan]) -> list[list[tuple[int, int, object, int]]]:
    """Plans as numbers: per step, per row `(row id, start, feed, sample_from)`; a `FromStep(n)`
    feed is the string `"<n"`."""
    return [
        [
            (
                row.row_id,
                row.start,
                f"<{row.feed.step_id}" if isinstance(row.feed, FromStep) else row.feed,
                row.sample_from,
            )
            for row in plan.rows
        ]
        for plan in plans
    ]
