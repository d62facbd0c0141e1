"""GOODPUT: one row's drafter that prices a round before it pays for it.

Owns the row's decisions and the state between an ask and what followed it. It must not know the
batch or the engine: the scheduler says what steps cost and whether one is in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.goodput.chances import RowChances, ServerPrior
from surefoot.speculation.goodput.ledger import Ledger
from surefoot.speculation.goodput.match import MatchTracker
from surefoot.speculation.goodput.width import (
    NO_ROUND,
    WidthChoice,
    choose_leaving,
    choose_width,
)
from surefoot.speculation.governed.drafter import PromptLookupStats
from surefoot.speculation.prices import StepPrices


class GoodputDrafter:
    """Proposes the width with the best expected gain that the ledger admits.

    Told as `PromptLookupDrafter` is, and besides, before each ask, what steps cost and whether a
    step is in flight (`situate`). Rows share `prior`. `round_costs` is not used: it is here for
    whoever sets the break-even rule's prices without looking.
    """

    num_pauses = 0

    def __init__(
        self,
        config: PromptLookupConfig,
        end_ids: frozenset[int] = frozenset(),
        prior: ServerPrior | None = None,
    ) -> None:
        self.config = config
        self.end_ids = end_ids
        self.round_costs: tuple[float, ...] | None = None
        self._prior = prior or ServerPrior()
        self._prices = StepPrices(0.0, (0.0, *(1.0 for _ in range(config.max_draft + 1))))
        self._reset([])

    def start(self, prompt_tokens: Sequence[int], first_token: int) -> None:
        """The row's prefill is done and sampled `first_token`. Forgets any earlier run."""
        self._reset([*prompt_tokens, first_token])

    def situate(self, prices: StepPrices, in_flight: bool) -> None:
        """What steps cost at this context, and whether a step whose token was not read feeds this
        row. Holds until the next call."""
        self._prices = prices
        self._in_flight = in_flight

    def draft_block(self, budget: int) -> list[int]:
        """Propose up to `budget` tokens to follow the context; empty: a plain step."""
        self.stats.rounds += 1
        self._asked = True
        self._room = budget
        choice = self._choose(budget, self._in_flight)
        draft = self._match.proposal(choice.num_drafts, self.end_ids)
        self._priced_out = not draft and self._match.source is not None
        if draft:
            self.stats.drafted_rounds += 1
            self.stats.proposed += len(draft)
        else:
            self.stats.paused_rounds += self._priced_out
        return draft

    def retract_draft(self, draft: Sequence[int]) -> None:
        """No forward followed the last ask, which answered `draft`: take what it added to `stats`
        back."""
        self.stats.rounds -= 1
        self.stats.paused_rounds -= self._priced_out
        if draft:
            self.stats.drafted_rounds -= 1
            self.stats.proposed -= len(draft)
            self.ledger.left_pipeline()
        self._asked = False

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        """Plain steps emitted `tokens`."""
        if self._asked and not self._in_flight and len(tokens) == 1:
            self.ledger.synchronous(self._prices)
        else:
            self.ledger.pipelined(len(tokens))
        self._asked = False
        self._room -= len(tokens)
        self._advance(tokens)

    def accept_verified_tokens(
        self, draft: Sequence[int], accepted: int, emitted: Sequence[int]
    ) -> None:
        """The round that verified `draft` kept `accepted` of its tokens and emitted `emitted`,
        both counted after stops and limits."""
        assert 0 <= accepted <= min(len(draft), len(emitted)), (accepted, draft, emitted)
        self.stats.accepted += accepted
        self.ledger.verified(self._prices, len(draft), len(emitted))
        self._asked = False
        self._room -= len(emitted)
        self._advance(emitted)

    def pipelines_plain_rounds(self) -> bool:
        """No round is worth its price from the context as it is: the next step may be submitted
        ahead."""
        return self._choose(self._room, in_flight=False).num_drafts == 0

    @property
    def last_ask_paused(self) -> bool:
        """The last ask had a match and found no round of it worth its price."""
        return self._priced_out

    def summary_line(self, num_tokens: int) -> str:
        """One line for a terminal, about a reply of `num_tokens`."""
        return self.stats.summary_line(num_tokens)

    def _reset(self, context: list[int]) -> None:
        self._match = MatchTracker(self.config, context)
        self._chances = RowChances(self._prior)
        self.ledger = Ledger()
        self.stats = PromptLookupStats()
        self._in_flight = False
        self._asked = False
        self._priced_out = False
        self._room = 0

    def _choose(self, budget: int, in_flight: bool) -> WidthChoice:
        match = self._match
        limit = min(budget, self._prices.max_draft)
        if match.source is None or limit < 1:
            return NO_ROUND
        landing = self._chances.landing(match.sights(limit + in_flight))
        allowance = self.ledger.allowance(self._prices)
        choose = choose_leaving if in_flight else choose_width
        return choose(landing, self._prices, allowance)

    def _advance(self, tokens: Sequence[int]) -> None:
        match = self._match
        for token in tokens:
            sight = match.first_sight()
            landed = match.advance(token)
            if sight is not None and landed is not None:
                self._chances.record(sight, landed)
