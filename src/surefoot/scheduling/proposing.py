"""Prompt lookup in the scheduler: who is asked for a proposal, and what is told to the drafters.

Owns the gate, the ask, the retraction and the server-wide count of synchronous plain ticks per
drafted round. Knows rows and drafters; must not know the engine or whether a tick is timed.

A row carries a drafter from its first sampled token on. Draft length 0 is plain decoding: every
row goes through here, a row that is never asked simply has no draft.

Lookahead rules (`scheduler` follows them, `docs/continuous-batching.md` draws them):

1. With step n in flight and before n+1 is primed, every gated-in row is asked.
2. Nobody proposes: prime n+1, then read n.
3. Somebody proposes: no prime; read n, retract every ask, and the next tick is synchronous.
4. After a synchronous tick prime again only if no row proposed in it and every gated-in row's
   drafter pipelines plain rounds. A tick that held a prompt chunk is never followed by a prime.

Invariants, asserted in `invariants`:

- I1 synchronous state: with nothing in flight, a decoding row's KV holds every token but the
  last. A verify round keeps the accepted drafts and the current token and unwinds the rest.
- I2 one append in flight: a row in a lookahead has one uncommitted position. Synchronous steps,
  so all verify rounds, never run while a lookahead is stored.
- I3 no prime past a proposal: a prime follows only when every gated-in row was asked this tick
  and none proposed.
- I4 drafter context: a drafter knows the prompt and every emitted token; every ask is followed by
  the forward it was made for, or retracted.
- I5 verify gate: a row is asked only in a small decode batch and with room for a proposal.
- I6 membership: a row joins, or is preempted, only after a stored lookahead was torn down; one
  that leaves has its uncommitted position unwound, and its window is freed after that.
- I7 errors: a failed joint forward is retried row by row, a failed lookahead read is unwound and
  decoded synchronously; only a row that fails alone is failed.
- I8 cancellation: a cancelled row is never cut mid-step; it ends after the tick.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from surefoot.scheduling import invariants
from surefoot.scheduling.drafting import Drafter
from surefoot.scheduling.row import Row
from surefoot.speculation.acceptance import proposal_room
from surefoot.speculation.config import PLAIN_ROUNDS_BEFORE_PIPELINE, PromptLookupConfig
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.goodput.drafter import GoodputDrafter
from surefoot.speculation.governed.drafter import PromptLookupDrafter
from surefoot.speculation.live_costs import LiveStep
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.prices import StepPrices

log = logging.getLogger(__name__)

PROMPT_LOOKUP_PAGED_CONTEXT_LIMIT: int | None = None
"""Tokens of context beyond which no row is asked when storage is paged; None: there is no such
length. A verify round reads the row's window on both storages, the same memory through the same
graph; blocks are copied when a row is admitted and when 16 more of its tokens are sealed, never
for a forward (`docs/prefix-cache.md`). Measured on paged storage: speculation on copies gains 133 %
at 1,024 tokens, 143 % at 2,048 and 122 % at 4,096 (`docs/benchmark_results/summary-2026-11-30.md`).
A storage whose verify forward gathers blocks first would lose from some length on, and that length
would stand here."""

DrafterFactory = Callable[[frozenset[int]], Drafter]
"""A new row's drafter, given the row's end ids."""

RoundCosts = Callable[[int, float, bool], tuple[float, ...]]
"""`round_costs(context, synchronous_ticks, sampled)`: what a round costs by width, in plain steps,
at a sequence of `context` tokens, when `synchronous_ticks` synchronous plain ticks follow a drafted
round on average. `sampled`: each fed position pays for a draw from its logits."""

StepPricesAt = Callable[[int, bool], StepPrices]
"""`step_prices(context, sampled)`: what GOODPUT's rows choose between at a sequence of `context`
tokens."""

OnStep = Callable[[LiveStep, bool], None]
"""`on_step(step, sampled)`: told of each step that one row had to itself."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of one tick: row -> its draft, empty if it did not propose. Rows that were not
    asked are absent."""

    drafts: dict[Row, tuple[int, ...]]

    @property
    def num_proposed(self) -> int:
        """Rows that propose."""
        return sum(1 for draft in self.drafts.values() if draft)

    @property
    def row_ids(self) -> set[int]:
        return {row.row_id for row in self.drafts}

    def draft_of(self, row: Row) -> tuple[int, ...]:
        return self.drafts.get(row, ())


@dataclass(slots=True)
class LookupCounts:
    """Of all rows since start. `paused_rounds`: forwards of rows that were asked and had no budget
    to propose. `steps_gained`: tokens that priced verify rounds emitted, less what the rounds
    cost, in plain steps; below zero they cost more than they emitted."""

    paused_rounds: int = 0
    steps_gained: float = 0.0


class PromptLookup:
    """`new_drafter` None: nobody is ever asked. Rows are asked while at most `max_batch` decode.
    `round_costs` None: the drafters keep the prices of their own configuration; `step_prices` None:
    GOODPUT's keep their last ones. Rows of more than `context_limit` tokens are not asked."""

    def __init__(
        self,
        new_drafter: DrafterFactory | None = None,
        *,
        max_batch: int = 2,
        round_costs: RoundCosts | None = None,
        step_prices: StepPricesAt | None = None,
        on_step: OnStep | None = None,
        synchronous_start: float = PLAIN_ROUNDS_BEFORE_PIPELINE,
        context_limit: int | None = PROMPT_LOOKUP_PAGED_CONTEXT_LIMIT,
    ) -> None:
        self._new_drafter = new_drafter
        self._max_batch = max_batch
        self._round_costs = round_costs
        self._step_prices = step_prices
        self.on_step = on_step
        self._context_limit = context_limit
        self._overlap = OverlapMeter(synchronous_start)
        self.counts = LookupCounts()

    @classmethod
    def from_config(
        cls,
        config: PromptLookupConfig,
        *,
        max_batch: int = 2,
        round_costs: RoundCosts | None = None,
        step_prices: StepPricesAt | None = None,
        on_step: OnStep | None = None,
    ) -> PromptLookup:
        """Prompt lookup with the real drafters. GOODPUT needs `step_prices`; its rows learn from
        each other."""
        prior = ServerPrior()

        def new_drafter(end_ids: frozenset[int]) -> Drafter:
            if config.prices_rounds:
                return GoodputDrafter(config, end_ids, prior)
            return PromptLookupDrafter(config, end_ids)

        return cls(
            new_drafter,
            max_batch=max_batch,
            round_costs=round_costs,
            step_prices=step_prices,
            on_step=on_step,
            synchronous_start=config.plain_rounds_before_pipeline,
        )

    @property
    def synchronous_ticks_per_round(self) -> float:
        """Mean synchronous plain ticks that a drafted round drags behind it, over all rows."""
        return self._overlap.ticks_per_round

    def gated_in(self, rows: Sequence[Row], capacity: int, in_flight: bool) -> list[Row]:
        """Of these decoding rows, those that may propose now. `in_flight`: a step whose tokens
        were not read feeds them."""
        if len(rows) > self._max_batch:
            return []
        limit = self._context_limit
        return [
            row
            for row in rows
            if row.drafter is not None
            and _room(row, capacity, in_flight) >= 1
            and (limit is None or len(row.tokens) <= limit)
        ]

    def ask(self, rows: Sequence[Row], capacity: int, in_flight: bool = False) -> Asked:
        """Ask every gated-in row once on its committed tokens."""
        drafts: dict[Row, tuple[int, ...]] = {}
        for row in self.gated_in(rows, capacity, in_flight):
            assert row.drafter is not None
            invariants.i4_ask_settled(row)
            invariants.i5_batch_fits(len(rows), self._max_batch)
            self._situate(row, in_flight)
            draft = tuple(row.drafter.draft_block(_room(row, capacity, in_flight)))
            row.asked = True
            drafts[row] = draft
        return Asked(drafts)

    def retract(self, asked: Asked) -> None:
        """No forward follows these asks."""
        for row, draft in asked.drafts.items():
            assert row.drafter is not None
            row.drafter.retract_draft(draft)
            row.asked = False

    def forwarded(self, asked: Asked) -> None:
        """The step that the rows were asked for is submitted."""
        for row in asked.drafts:
            assert row.drafter is not None
            row.asked = False
            self.counts.paused_rounds += row.drafter.last_ask_paused

    def count_synchronous_tick(self, asked: Asked) -> None:
        """A synchronous tick without a prompt chunk ran: it counts what rounds cost. (Beside a
        chunk no overlap is lost: such a tick is synchronous anyway.)"""
        for _ in range(asked.num_proposed):
            self._overlap.drafted_round()
        if not asked.num_proposed:
            self._overlap.synchronous_tick()

    def pipeline_resumed(self) -> None:
        """A prime, or no row is left: synchronous ticks from here on have another cause."""
        self._overlap.primed()

    def may_prime(self, asked: Asked, rows: Sequence[Row], capacity: int) -> bool:
        """Rule 4, after a synchronous tick without a prompt chunk that asked `asked`; `rows` are
        those that decode on. A row that is gated in only now was not asked: not yet."""
        if asked.num_proposed:
            return False
        return all(
            row in asked.drafts and row.drafter is not None and row.drafter.pipelines_plain_rounds()
            for row in self.gated_in(rows, capacity, in_flight=False)
        )

    def committed(
        self, row: Row, draft: Sequence[int], accepted: int, tokens: Sequence[int]
    ) -> None:
        """`tokens` were kept, `accepted` of them from `draft`. The row's first sampled token, or
        the first after preemption, starts its drafter."""
        if row.drafter is None:
            self._start_drafter(row)
        elif draft:
            if self._round_costs is not None:
                row.drafter.round_costs = self._round_costs(
                    len(row.tokens),
                    self.synchronous_ticks_per_round,
                    row.request.sampling.needs_logits,
                )
            costs = row.drafter.round_costs
            if costs is not None:
                self.counts.steps_gained += len(tokens) - costs[len(draft) + 1]
            row.drafter.accept_verified_tokens(draft, accepted, tokens)
        else:
            row.drafter.observe_emitted(tokens)
        if row.drafter is not None:
            row.num_told += len(tokens)
            invariants.i4_drafter_context(row, row.num_told)

    def timed(self, row: Row, step: LiveStep | None) -> None:
        """How long the committed step took; None where that says nothing. Rows that never propose
        are left out: what they do besides (log probabilities) takes time too."""
        if self.on_step is not None and step is not None and row.drafter is not None:
            self.on_step(step, row.request.sampling.needs_logits)

    def _situate(self, row: Row, in_flight: bool) -> None:
        if self._step_prices is not None and isinstance(row.drafter, GoodputDrafter):
            sampled = row.request.sampling.needs_logits
            row.drafter.situate(self._step_prices(len(row.tokens), sampled), in_flight)

    def _start_drafter(self, row: Row) -> None:
        if self._new_drafter is None:
            return
        reason = _ineligible(row)
        if reason is not None:
            log.debug("row %d decodes plainly: %s", row.row_id, reason)
            return
        row.drafter = self._new_drafter(row.request.end_ids)
        row.drafter.start(row.tokens[:-1], row.tokens[-1])
        row.num_told = len(row.tokens) - 1


def _room(row: Row, capacity: int, in_flight: bool) -> int:
    return proposal_room(
        tokens_left=row.request.max_tokens - row.num_emitted,
        start=row.num_computed,
        capacity=capacity,
        in_flight=in_flight,
    )


def _ineligible(row: Row) -> str | None:
    """Why a row never proposes, or None."""
    if not row.request.speculation:
        return "the request asks for no speculation"
    if row.request.sampling.logprobs is not None:
        return "log probabilities are reported of plain steps"
    return None
