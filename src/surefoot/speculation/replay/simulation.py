"""Walks a recorded reply as the scheduler would have decoded it, and prices the walk.

Owns the walk: which ticks, which rounds, at what cost. No model, no clock, no randomness: the
same trace, policy and table always give the same answer. It must not know the scheduler; the two
are held equal by a test.

The walk of one row
-------------------
After prefill the first token is emitted and nothing is in flight. Then tick by tick, until the
reply is complete:

    nothing in flight (a synchronous tick)
      ask, if there is room          room = min(max_tokens - emitted - 1, window - KV - 1)
      a proposal of k tokens      -> VERIFY: feed k + 1, emit accepted + 1;  stay synchronous
      none, or not asked          -> SYNCHRONOUS plain step, emit 1;  then prime the next step
                                     unless the row would be asked again now (room, counted
                                     after this token) and its drafter does not say
                                     `pipelines_plain_rounds()`

    step n in flight (a lookahead tick; its token is sampled but not read)
      ask on the committed tokens, if there is room counting n's token as emitted
                                     room = min(max_tokens - emitted - 2, window - KV - 2)
      none, or not asked          -> PIPELINED: prime n + 1, read n, emit 1;  stay in flight
      a proposal                  -> SWITCH: no prime; retract the ask, read n, emit 1;  nothing
                                     is in flight, and the row is asked again from the new token

A row that ends is never primed; a step that was primed past an end token costs nothing, as it
costs the client nothing. `proposal_room` is the room in both forms.

Accounting, in plain steps of the context bucket at the tick: VERIFY `verify[width] / pipelined`,
SYNCHRONOUS `synchronous / pipelined`, PIPELINED and SWITCH 1. The first emitted token is free, so
the cost per token is over `len(emitted) - 1`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from surefoot.speculation.acceptance import accepted_prefix, emitted_tokens, proposal_room
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.costs import StepCosts
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.goodput.drafter import GoodputDrafter
from surefoot.speculation.governed.drafter import PromptLookupDrafter, PromptLookupStats
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.prices import PriceBook
from surefoot.speculation.replay.traces import Trace


class TickKind(Enum):
    """What one turn of the loop did with the row."""

    VERIFY = "verify"
    SYNCHRONOUS = "synchronous"
    PIPELINED = "pipelined"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Tick:
    """`context` tokens (prompt and emitted) were known before it; it fed `width` of the row."""

    kind: TickKind
    context: int
    width: int = 1

    def cost(self, costs: StepCosts) -> float:
        """In plain steps of its context bucket."""
        if self.kind is TickKind.VERIFY:
            return costs.relative(self.width, self.context)
        if self.kind is TickKind.SYNCHRONOUS:
            return costs.relative_synchronous(self.context)
        return 1.0


@dataclass(frozen=True, slots=True)
class VerifyRound:
    """`position` tokens were emitted before it; it kept `accepted` of `proposed` drafts."""

    position: int
    proposed: int
    accepted: int

    @property
    def width(self) -> int:
        """Fed tokens."""
        return self.proposed + 1


@dataclass(frozen=True, slots=True)
class Replay:
    """A walked trace. `num_tokens` excludes the free first token; costs are in plain steps.
    `plain_cost` is the same walk without speculation: one synchronous tick, then the pipeline."""

    num_tokens: int
    cost: float
    plain_cost: float
    ticks: tuple[Tick, ...]
    rounds: tuple[VerifyRound, ...]
    stats: PromptLookupStats
    num_pauses: int

    @property
    def cost_per_token(self) -> float:
        """Plain pipelined decoding costs 1."""
        return self.cost / self.num_tokens if self.num_tokens else 0.0

    @property
    def change(self) -> float:
        """Cost against plain decoding of the same reply: -0.2 is a fifth cheaper."""
        return self.cost / self.plain_cost - 1.0 if self.plain_cost else 0.0

    @property
    def tick_counts(self) -> dict[TickKind, int]:
        """How many ticks of each kind."""
        counted = Counter(tick.kind for tick in self.ticks)
        return {kind: counted[kind] for kind in TickKind}


def replay_trace(
    trace: Trace,
    config: PromptLookupConfig,
    costs: StepCosts,
    *,
    overlap: OverlapMeter | None = None,
    prior: ServerPrior | None = None,
) -> Replay:
    """Walk `trace` under `config` and price it by `costs`.

    `overlap` given: the row is priced as on a server with automatic thresholds. Before each
    drafted round is recorded its drafter gets `costs.round_costs` of the context bucket, the
    round's tokens counted, and of the meter's mean, the round not counted; one meter goes
    through all traces of a server. GOODPUT is priced by `costs` always; `prior` is what its
    server has learned, and learns on.
    """
    walk = _Walk(trace, _new_drafter(trace, config, prior), costs, overlap)
    walk.run()
    plain = plain_ticks(trace)
    return Replay(
        num_tokens=len(trace.emitted) - 1,
        cost=sum(tick.cost(costs) for tick in walk.ticks),
        plain_cost=sum(tick.cost(costs) for tick in plain),
        ticks=tuple(walk.ticks),
        rounds=tuple(walk.rounds),
        stats=walk.drafter.stats,
        num_pauses=walk.drafter.num_pauses,
    )


def plain_ticks(trace: Trace) -> list[Tick]:
    """The walk of the same reply without speculation."""
    contexts = range(len(trace.prompt) + 1, len(trace.prompt) + len(trace.emitted))
    return [
        Tick(TickKind.PIPELINED if index else TickKind.SYNCHRONOUS, context)
        for index, context in enumerate(contexts)
    ]


def _new_drafter(
    trace: Trace, config: PromptLookupConfig, prior: ServerPrior | None
) -> PromptLookupDrafter | GoodputDrafter:
    if config.prices_rounds:
        return GoodputDrafter(config, trace.end_ids, prior)
    return PromptLookupDrafter(config, trace.end_ids)


class _Walk:
    """The row of the module's diagram. `emitted` counts the tokens read so far."""

    def __init__(
        self,
        trace: Trace,
        drafter: PromptLookupDrafter | GoodputDrafter,
        costs: StepCosts,
        overlap: OverlapMeter | None,
    ) -> None:
        config = drafter.config
        self._trace = trace
        self._pricing = costs if overlap is not None else None
        self._overlap = overlap or OverlapMeter(config.plain_rounds_before_pipeline)
        self._max_draft = config.max_draft
        self._prices = PriceBook(costs, config.max_draft)
        self.drafter = drafter
        self.drafter.start(trace.prompt, trace.emitted[0])
        self.ticks: list[Tick] = []
        self.rounds: list[VerifyRound] = []
        self._emitted = 1
        self._in_flight = False

    def run(self) -> None:
        while not self._complete:
            if self._in_flight:
                self._lookahead_tick()
            else:
                self._synchronous_tick()
        self._overlap.primed()

    @property
    def _complete(self) -> bool:
        return self._emitted == len(self._trace.emitted)

    @property
    def _context(self) -> int:
        return len(self._trace.prompt) + self._emitted

    def _room(self, *, in_flight: bool) -> int:
        trace = self._trace
        return proposal_room(
            tokens_left=trace.token_limit - self._emitted,
            start=len(trace.prompt) + self._emitted - 1,
            capacity=trace.capacity,
            in_flight=in_flight,
        )

    def _ask(self, *, in_flight: bool) -> list[int]:
        room = self._room(in_flight=in_flight)
        if not room:
            return []
        if isinstance(self.drafter, GoodputDrafter):
            self.drafter.situate(self._prices.at(self._context), in_flight)
        return self.drafter.draft_block(room)

    def _lookahead_tick(self) -> None:
        draft = self._ask(in_flight=True)
        if draft:
            self.drafter.retract_draft(draft)
        self._plain_token(TickKind.SWITCH if draft else TickKind.PIPELINED)
        self._in_flight = not draft

    def _synchronous_tick(self) -> None:
        draft = self._ask(in_flight=False)
        if draft:
            self._verify(draft)
            return
        self._plain_token(TickKind.SYNCHRONOUS)
        self._overlap.synchronous_tick()
        asks_again = self._room(in_flight=False) > 0
        if not asks_again or self.drafter.pipelines_plain_rounds():
            self._in_flight = True
            self._overlap.primed()

    def _plain_token(self, kind: TickKind) -> None:
        self._tick(kind)
        self.drafter.observe_emitted((self._trace.emitted[self._emitted],))
        self._emitted += 1

    def _verify(self, draft: list[int]) -> None:
        trace, position = self._trace, self._emitted
        samples = trace.emitted[position : position + len(draft) + 1]
        kept = emitted_tokens(draft, samples, trace.end_ids)
        accepted = min(accepted_prefix(draft, samples), len(kept))
        self._tick(TickKind.VERIFY, len(draft) + 1)
        self.rounds.append(VerifyRound(position, len(draft), accepted))
        self._emitted += len(kept)
        if self._pricing is not None:
            self.drafter.round_costs = self._pricing.round_costs(
                self._context, self._max_draft, self._overlap.ticks_per_round
            )
        self.drafter.accept_verified_tokens(draft, accepted, kept)
        self._overlap.drafted_round()

    def _tick(self, kind: TickKind, width: int = 1) -> None:
        self.ticks.append(Tick(kind, self._context, width))
