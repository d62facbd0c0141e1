"""One row's prompt-lookup drafter: its context, its governor, its probe and its counts.

Owns what a row knows about speculation. It must not know the batch, the engine, or whether a
step is in flight: the scheduler asks, verifies, retracts and reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.speculation.acceptance import cut_after_end
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.governed.governor import DraftGovernor
from surefoot.speculation.governed.probe import ShadowProbe
from surefoot.speculation.lookup import NgramIndex


@dataclass(slots=True)
class PromptLookupStats:
    """Counts of one row. `rounds`: asks that a forward followed. `drafted_rounds`: those that
    proposed. `paused_rounds`: those whose budget was 0, whatever paused it. `proposed` and
    `accepted` count tokens. `shadow_confirmations`: probes that came true."""

    rounds: int = 0
    drafted_rounds: int = 0
    paused_rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    shadow_confirmations: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted per proposed token; 0 without proposals."""
        return self.accepted / self.proposed if self.proposed else 0.0

    def tokens_per_forward(self, num_tokens: int) -> float:
        """Mean tokens of a decode forward in a reply of `num_tokens`. The first comes from
        prefill; every forward emits its accepted drafts and one token more (a round that an end
        token cut may lack that one)."""
        decoded = num_tokens - 1
        forwards = max(decoded - self.accepted, self.drafted_rounds)
        return decoded / forwards if forwards > 0 else 0.0

    def summary_line(self, num_tokens: int) -> str:
        """One line for a terminal, about a reply of `num_tokens`."""
        return (
            f"prompt lookup: rounds={self.rounds} drafted={self.drafted_rounds} "
            f"paused={self.paused_rounds} proposed={self.proposed} accepted={self.accepted} "
            f"acceptance={self.acceptance_rate:.3f} "
            f"tokens_per_forward={self.tokens_per_forward(num_tokens):.3f} "
            f"shadow_confirmations={self.shadow_confirmations}"
        )


class PromptLookupDrafter:
    """Proposes what followed the row's last tokens when they occurred before.

    The caller tells it every emitted token (`observe_emitted` for plain steps,
    `accept_verified_tokens` for verify rounds) before it asks, and follows every ask by the
    forward it was made for or by `retract_draft`. A proposal is cut after an end token.
    """

    stats: PromptLookupStats
    _probe: ShadowProbe | None
    _plain_streak: int
    _last_paused: bool

    def __init__(self, config: PromptLookupConfig, end_ids: frozenset[int] = frozenset()) -> None:
        self.config = config
        self.end_ids = end_ids
        self._reset([])

    def start(self, prompt_tokens: Sequence[int], first_token: int) -> None:
        """The row's prefill is done and sampled `first_token`. Forgets any earlier run, except
        the prices in `round_costs`."""
        round_costs = self.round_costs
        self._reset([*prompt_tokens, first_token])
        self.round_costs = round_costs

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        """Plain steps emitted `tokens`."""
        self._context.extend(tokens)

    def draft_block(self, budget: int) -> list[int]:
        """Propose up to `budget` tokens to follow the context; empty: a plain step."""
        self._settle_probe()
        allowance = min(self._governor.budget(), budget)
        self.stats.rounds += 1
        self._last_paused = allowance <= 0
        if self._last_paused:
            self.stats.paused_rounds += 1
            self._plain_streak += 1
            self._start_probe()
            return []
        self._index.extend(self._context)
        found = self._index.find(self._context, self.config)[:allowance]
        draft = list(cut_after_end(found, self.end_ids))
        if draft:
            self._plain_streak = 0
            self.stats.drafted_rounds += 1
            self.stats.proposed += len(draft)
        else:
            self._plain_streak += 1
        return draft

    def retract_draft(self, draft: Sequence[int]) -> None:
        """No forward followed the last ask, which answered `draft` (it may be empty): take what
        it added to `stats` back. The plain streak, the probe and a pause's countdown stay, and so
        does a confirmation: it is a fact about emitted tokens, and the resume stands too."""
        self.stats.rounds -= 1
        if self._last_paused:
            self.stats.paused_rounds -= 1
        if draft:
            self.stats.drafted_rounds -= 1
            self.stats.proposed -= len(draft)
        assert self.stats.rounds >= 0, self.stats
        assert self.stats.proposed >= 0, self.stats

    def accept_verified_tokens(
        self, draft: Sequence[int], accepted: int, emitted: Sequence[int]
    ) -> None:
        """The round that verified `draft` kept `accepted` of its tokens and emitted `emitted`,
        both counted after stops and limits."""
        assert 0 <= accepted <= min(len(draft), len(emitted)), (accepted, draft, emitted)
        self._context.extend(emitted)
        self.stats.accepted += accepted
        if draft:
            self._governor.record(accepted, len(draft))

    def pipelines_plain_rounds(self) -> bool:
        """No proposal is expected soon: a plain step may be submitted before the one in front of
        it is read."""
        return (
            self._plain_streak > self.config.plain_rounds_before_pipeline
            or self._governor.probes_while_paused
        )

    @property
    def round_costs(self) -> tuple[float, ...] | None:
        """What a round costs by width, in plain steps: the break-even rule's prices. Set it
        whenever they change; averages so far keep the prices of their rounds. Ignored under
        `config.min_tokens_per_round`."""
        return self._governor.break_even.round_costs

    @round_costs.setter
    def round_costs(self, round_costs: tuple[float, ...] | None) -> None:
        self._governor.break_even.round_costs = round_costs

    @property
    def last_ask_paused(self) -> bool:
        """The last ask found no budget: a pause, whatever began it."""
        return self._last_paused

    @property
    def num_pauses(self) -> int:
        """Times the governor paused this row."""
        return self._governor.num_pauses

    def summary_line(self, num_tokens: int) -> str:
        """One line for a terminal, about a reply of `num_tokens`."""
        return self.stats.summary_line(num_tokens)

    def _reset(self, context: list[int]) -> None:
        self._context = context
        self._index = NgramIndex(self.config)
        self._governor = DraftGovernor(self.config)
        self._probe = None
        self._plain_streak = 0
        self._last_paused = False
        self.stats = PromptLookupStats()

    def _settle_probe(self) -> None:
        if self._probe is None:
            return
        came_true = self._probe.settle(self._context)
        if came_true is None:
            return
        self._probe = None
        if came_true:
            self.stats.shadow_confirmations += 1
            self._governor.shadow_confirmed()
        else:
            self._governor.shadow_refuted()

    def _start_probe(self) -> None:
        if self._probe is not None or not self._governor.may_probe:
            return
        wanted = self._governor.confirm_tokens
        self._index.extend(self._context)
        proposal = self._index.propose(self._context, wanted)
        if proposal and self.config.overlapping_probes:
            proposal = [proposal[i % len(proposal)] for i in range(wanted)]
        if len(proposal) >= wanted:
            self._probe = ShadowProbe(len(self._context), tuple(proposal))
