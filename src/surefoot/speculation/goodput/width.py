"""How many drafts to verify: the width whose expected growth is best, none included.

Owns the choice alone. It must not know where the chances or the prices come from.

A ledger that may not be overdrawn is a gambler's purse, so the bets are Kelly's: the width with the
greatest expected logarithm of what the purse holds afterwards. With a full purse that is the width
with the best expected gain; with an almost empty one only narrow and likely rounds are taken, and
what is left lasts for better matches. By replay it beats the best expected gain under the same
bound on every table, and the unbounded one on most (`docs/adr/0006-goodput.md`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.speculation.prices import StepPrices

#: A purse is never quite empty: a total miss of an admissible round may leave exactly nothing.
LEAST_PURSE = 1e-6


@dataclass(frozen=True, slots=True)
class WidthChoice:
    """`num_drafts` 0: a plain step. `gain`: expected tokens less cost, in plain steps, against
    plain decoding; 0 for the plain step."""

    num_drafts: int
    gain: float


NO_ROUND = WidthChoice(0, 0.0)


def choose_width(landing: Sequence[float], prices: StepPrices, allowance: float) -> WidthChoice:
    """The best round with nothing in flight. `landing[i]` is the chance that the first `i + 1`
    drafts all land; a round is admissible if it cannot lose more than `allowance`.

    A round of k drafts emits `1 + landing[0] + ... + landing[k-1]` tokens on average; its growth is
    the expected `log(1 + (emitted - cost) / allowance)`, which is at most that of the average:
    a width whose average cannot win is not worked out.
    """
    best, best_gain, best_growth, emitted = 0, 0.0, 0.0, 1.0
    purse = max(allowance, LEAST_PURSE)
    affordable = allowance + 1.0 - prices.exit_cost
    for num_drafts, chance in enumerate(landing, start=1):
        emitted += chance
        cost = prices.verify[num_drafts + 1]
        gain = emitted - cost
        if gain <= 0.0 or cost > affordable or math.log1p(gain / purse) <= best_growth:
            continue
        growth = _growth(landing, num_drafts, cost, purse)
        if growth > best_growth:
            best, best_gain, best_growth = num_drafts, gain, growth
    return WidthChoice(best, best_gain) if best else NO_ROUND


def choose_leaving(landing: Sequence[float], prices: StepPrices, allowance: float) -> WidthChoice:
    """The same with a step in flight, whose token comes first: a round can only follow if that
    token is what `landing[0]` is the chance of, and the way back is paid in either case.

    It pays for more than one round: where all drafts of the first land, one further like it is
    counted.
    """
    first = landing[0] if landing else 0.0
    if first <= 0.0:
        return NO_ROUND
    onward = choose_width([chance / first for chance in landing[1:]], prices, allowance)
    if not onward.num_drafts:
        return NO_ROUND
    rounds = first + landing[onward.num_drafts]
    gain = rounds * onward.gain - prices.exit_cost
    return WidthChoice(onward.num_drafts, gain) if gain > 0.0 else NO_ROUND


def _growth(landing: Sequence[float], num_drafts: int, cost: float, purse: float) -> float:
    """Expected log of the purse after a round, less that of the purse before it."""
    growth, reached = 0.0, 1.0
    for landed in range(num_drafts + 1):
        further = landing[landed] if landed < num_drafts else 0.0
        left = max(1.0 + (landed + 1 - cost) / purse, LEAST_PURSE)
        growth += (reached - further) * math.log(left)
        reached = further
    return growth
