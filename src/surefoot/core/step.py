"""What the scheduler asks of the engine in one step, and what comes back.

Plain frozen data: the same plan always means the same step. The engine keeps no counter of its
own about a row; a plan states the row's window and how many of its positions are valid, so a
rejected draft is undone by the next plan naming a smaller `start`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.core.request import SamplingParams, TokenLogprobs


@dataclass(frozen=True, slots=True)
class FromStep:
    """Feed one token: the last one that step `step_id`, submitted just before, samples for the
    same row. The engine wires it without the scheduler seeing the token first."""

    step_id: int


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How to draw a row's tokens.

    `output_ids` are the emitted tokens known when the plan was made, the current token included;
    they are filled only when `params.has_penalties` (else empty), as is `prompt_ids`. Tokens that
    the engine learns within the step (a `FromStep` feed, drafts before a position) it adds itself.
    """

    params: SamplingParams
    prompt_ids: Sequence[int] = ()
    output_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One row's part of a step: feed tokens at positions `[start, start + len(feed))`.

    A token is sampled after each fed index in `[sample_from, len(feed))`; `sample_from ==
    len(feed)` samples nothing (a prompt chunk that is not the last). The token sampled after fed
    index i gets absolute position `start + i + 1`, the position its random draw is keyed by.
    """

    row_id: int
    window: int
    feed: tuple[int, ...] | FromStep
    start: int
    sample_from: int
    sampling: RowSampling

    def __post_init__(self) -> None:
        assert self.num_fed >= 1, self
        assert 0 <= self.sample_from <= self.num_fed, self
        assert self.start >= 0, self

    @property
    def num_fed(self) -> int:
        """Tokens this row feeds: the width of its round."""
        return 1 if isinstance(self.feed, FromStep) else len(self.feed)

    @property
    def end(self) -> int:
        """KV positions written when the step is done: `start + num_fed`."""
        return self.start + self.num_fed


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward: rows with distinct ids and distinct windows."""

    step_id: int
    rows: tuple[RowPlan, ...]

    def __post_init__(self) -> None:
        assert self.rows, "a step has at least one row"
        assert len({row.window for row in self.rows}) == len(self.rows), self.rows


@dataclass(frozen=True, slots=True)
class RowResult:
    """`tokens[j]` was sampled after fed index `sample_from + j`. `error` set: the row's forward
    failed, `tokens` is empty and its positions from `start` on are undefined. `logprobs` is
    parallel to `tokens` when the row asked for them. `out_of_memory`: of the error, that another
    time the same forward may do."""

    row_id: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: str | None = None
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """Rows in plan order; `seconds` is the time the executor spent on the step."""

    step_id: int
    rows: tuple[RowResult, ...]
    seconds: float


class StepHandle(Protocol):
    """A submitted step."""

    def result(self) -> StepResult:
        """Block until the step is done. Never raises for a failing forward: its rows carry the
        error."""
        ...


class StepEngine(Protocol):
    """Whatever turns plans into results: the real engine, or a scripted one in tests."""

    @property
    def num_windows(self) -> int:
        """KV windows, numbered from 0; each row in a plan uses one."""
        ...

    @property
    def capacity(self) -> int:
        """Token positions a window holds."""
        ...

    def submit(self, plan: StepPlan) -> StepHandle:
        """Queue the step and return at once. Steps run in submission order."""
        ...

    def release_window(self, window: int, first: int = 0) -> None:
        """The positions from `first` on hold nothing any more: their pages may go back to the
        system. Runs in submission order."""
        ...

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        ...


@dataclass(frozen=True, slots=True)
class BlockSource:
    """Where a block for the window's positions from `position` on is to be had: at the same
    positions of `window`, or in the block's own memory (None)."""

    position: int
    block: int
    window: int | None


class BlockStore(Protocol):
    """An engine that also keeps blocks of KV beside its windows: runs of positions copied out of
    one window and into others (`cache.block_pool.BLOCK_TOKENS` each). Copies and steps run in
    submission order, so a block may be named as soon as its copy is submitted."""

    @property
    def num_blocks(self) -> int:
        """Blocks, numbered from 0."""
        ...

    def store_blocks(self, window: int, copies: Sequence[tuple[int, int]]) -> None:
        """For each `(position, block)` copy the window's positions from `position` on into the
        block. They must be valid once the steps submitted before have run."""
        ...

    def load_blocks(self, window: int, length: int, sources: Sequence[BlockSource]) -> None:
        """A new row begins in the window: copy the sources into it. With what is in place already
        its first `length` positions are then valid, and no others."""
        ...

    def release_blocks(self, blocks: Sequence[int]) -> None:
        """The blocks' content is not needed any more: their pages may go back to the system."""
        ...
