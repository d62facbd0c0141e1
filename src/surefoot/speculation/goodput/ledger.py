"""What a row's speculation has gained or lost so far, and what it may still risk.

Owns one balance in plain steps. It must not know tokens, lookups or how a width was chosen.
"""

from __future__ import annotations

from surefoot.speculation.prices import StepPrices

#: Share of the tokens emitted that speculation may lose for good (`docs/design.md`, section 6).
LOSS_RATE = 0.005

#: Drafts of the one miss that a row may always afford besides: GATED's narrow block.
NARROW_DRAFT = 2

#: Most gain, in plain steps, that a row may risk again; what is earned beyond it is kept. Chosen by
#: replay, `docs/adr/0006-goodput.md`.
MAX_GAIN = 4.0


class Ledger:
    """Gain in plain steps: tokens emitted less what the steps cost, beyond plain decoding.

    The balance is capped above by `MAX_GAIN` and a round is admissible only if a total miss leaves
    it at `-(LOSS_RATE * tokens emitted + one narrow miss)` or more, the way back into the pipeline
    included. So for any text and any table

        cost <= plain cost + LOSS_RATE * tokens + one narrow miss + one way back

    where the last two are the dearest of the table: the cap only ever lowers the balance, so what
    was truly gained is at least the balance. (The way back at the end stands for prices that
    change between a round and the step after it. Plain decoding counts as one step a token, also
    where a table calls its first, synchronous one faster than that.)

    After prefill plain decoding enters the pipeline by a synchronous step too, so the first way
    back is paid for.
    """

    def __init__(self) -> None:
        self.balance = 0.0
        self.num_tokens = 0
        self._entered = False
        self._owes_exit = False

    def allowance(self, prices: StepPrices) -> float:
        """The most that may be lost from here, in plain steps, the way back included."""
        narrow = prices.worst_loss(min(NARROW_DRAFT, prices.max_draft))
        paid = 0.0 if self._entered else prices.exit_cost
        return self.balance + LOSS_RATE * self.num_tokens + max(narrow, 0.0) + paid

    def pipelined(self, num_tokens: int) -> None:
        """Tokens at their plain cost: nothing is gained or lost."""
        self.num_tokens += num_tokens
        self._entered = True

    def left_pipeline(self) -> None:
        """The step in flight is read with no prime behind it: a way back is owed."""
        self._owes_exit = True

    def synchronous(self, prices: StepPrices) -> None:
        """One token from a synchronous plain step: pays the way back, if one is owed."""
        self.num_tokens += 1
        if self._owes_exit and self._entered:
            self.balance -= prices.exit_cost
        self._owes_exit = False
        self._entered = True

    def verified(self, prices: StepPrices, num_drafts: int, num_emitted: int) -> None:
        """A round of `num_drafts` emitted `num_emitted` tokens."""
        self.num_tokens += num_emitted
        gain = num_emitted - prices.verify[num_drafts + 1]
        self.balance = min(self.balance + gain, MAX_GAIN)
        self._owes_exit = True
