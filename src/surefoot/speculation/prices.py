"""What the steps that a row may choose between cost, in plain steps.

Owns the prices of one context bucket and the book of all of them, made once from a cost table so
that an ask does no arithmetic over seconds. It must not know tokens or policies.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.speculation.costs import CostBucket, StepCosts


@dataclass(frozen=True, slots=True)
class StepPrices:
    """Prices at one context, in its pipelined plain steps.

    `exit_cost`: what a synchronous plain step costs beyond a pipelined one, at least 0; every
    stay outside the pipeline ends with one. `verify[w]`: a verify forward of `w` fed tokens, from
    0 (no round, 0.0) to the widest.
    """

    exit_cost: float
    verify: tuple[float, ...]

    @classmethod
    def of(cls, bucket: CostBucket, max_draft: int) -> StepPrices:
        """The bucket's prices for drafts of up to `max_draft` tokens."""
        widths = range(1, max_draft + 2)
        return cls(
            exit_cost=max(bucket.relative_synchronous - 1.0, 0.0),
            verify=(0.0, *(bucket.relative(width) for width in widths)),
        )

    @property
    def max_draft(self) -> int:
        """Drafts of the widest priced round."""
        return len(self.verify) - 2

    def worst_loss(self, num_drafts: int) -> float:
        """What a round of `num_drafts` loses when none lands: it emits one token, and the
        pipeline is to be entered again."""
        return self.verify[num_drafts + 1] - 1.0 + self.exit_cost


class PriceBook:
    """`StepPrices` of every bucket of `costs`."""

    def __init__(self, costs: StepCosts, max_draft: int) -> None:
        self.costs = costs
        self._prices = {
            bucket.context: StepPrices.of(bucket, max_draft) for bucket in costs.buckets
        }

    def at(self, context: int) -> StepPrices:
        """The prices of the bucket nearest to `context` tokens."""
        return self._prices[self.costs.bucket_for(context).context]


class PriceBooks:
    """The books of a machine's two tables, without a draw at each position and with one."""

    def __init__(self, max_draft: int, greedy: StepCosts, sampled: StepCosts) -> None:
        self._max_draft = max_draft
        self._books = {False: PriceBook(greedy, max_draft), True: PriceBook(sampled, max_draft)}

    def use(self, greedy: StepCosts, sampled: StepCosts) -> None:
        """Price by these from now on. A table that is the same object keeps its book."""
        for draws, costs in ((False, greedy), (True, sampled)):
            if self._books[draws].costs is not costs:
                self._books[draws] = PriceBook(costs, self._max_draft)

    def at(self, context: int, sampled: bool) -> StepPrices:
        """The prices near `context` tokens; `sampled`: for a row whose tokens are drawn."""
        return self._books[sampled].at(context)
