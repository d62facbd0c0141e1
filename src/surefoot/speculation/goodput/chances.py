"""How likely a looked-up token is to come true: one logistic model, shipped, then learned on.

Owns the model's weights and a row's rate. It must not know tokens or prices.

Every looked-up token is a fact that decoding gives for free, whether or not a round verified it:
full information, so nothing has to be tried to be known. The weights are a server's, and all its
rows teach them; what differs from row to row is how much of what was looked up came true so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from surefoot.speculation.goodput.match import MAX_RUN, Sight

#: Weights of: 1, log(run), the row's rate, the share of rivals that agree, log(rivals), log(1 +
#: frequency). Fitted to the replies of the default model, greedy and sampled, to the prompts that
#: the policy was tuned on (`docs/benchmark_results/replay-goodput-2026-11-29`).
SHIPPED_WEIGHTS = (-5.54, 1.01, 1.17, 3.68, 0.75, 0.43)

#: Step of the stochastic gradient, and the pull back to the shipped weights: about the last
#: `1 / (LEARNING_RATE * PULL)` tokens are remembered.
LEARNING_RATE = 0.003
PULL = 0.02

#: A proposal is not worked out beyond the first token that it reaches with less chance than this.
LEAST_CHANCE = 0.02

MAX_LOGGED = 4095
_LOG = (0.0, *(math.log(number) for number in range(1, MAX_LOGGED + 1)))

Features = tuple[float, float, float, float, float, float]


class ServerPrior:
    """The weights, over all rows of a server. One thread tells it.

    It changes which rounds look worthwhile and never what a row may lose: that is the ledger's.
    """

    def __init__(self) -> None:
        self.weights = list(SHIPPED_WEIGHTS)

    def chance(self, features: Features) -> float:
        """That the token comes true."""
        logit = sum(map(float.__mul__, self.weights, features))
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))

    def learn(self, features: Features, landed: bool) -> None:
        """One looked-up token came true, or did not."""
        error = self.chance(features) - landed
        self.weights = [
            weight - LEARNING_RATE * (error * feature + PULL * (weight - shipped))
            for weight, feature, shipped in zip(
                self.weights, features, SHIPPED_WEIGHTS, strict=True
            )
        ]


class RowChances:
    """One row's chances: the server's weights and the row's own rate."""

    def __init__(self, prior: ServerPrior) -> None:
        self._prior = prior
        self._num_landed = 1
        self._num_seen = 2

    def record(self, sight: Sight, landed: bool) -> None:
        """The first token of a proposal came true, or did not."""
        self._prior.learn(self._features(sight), landed)
        self._num_landed += landed
        self._num_seen += 1

    def landing(self, sights: Iterable[Sight]) -> list[float]:
        """`[i]`: the chance that the first `i + 1` of a proposal's tokens all come true. The sum of
        `ServerPrior.chance`, term by term: a row asks this at each of its tokens."""
        constant, of_run, of_rate, of_share, of_rivals, of_frequency = self._prior.weights
        own_rate = of_rate * (self._num_landed / self._num_seen)
        together, chances = 1.0, []
        for run, num_rivals, num_agreeing, frequency in sights:
            logit = constant + of_run * _LOG[run if run < MAX_RUN else MAX_RUN] + own_rate
            logit += of_share * (num_agreeing / num_rivals)
            logit += of_rivals * _LOG[num_rivals]
            logit += of_frequency * _LOG[frequency + 1 if frequency < MAX_LOGGED else MAX_LOGGED]
            together *= 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))
            if together < LEAST_CHANCE:
                break
            chances.append(together)
        return chances

    def _features(self, sight: Sight) -> Features:
        return (
            1.0,
            _LOG[min(sight.run, MAX_RUN)],
            self._num_landed / self._num_seen,
            sight.num_agreeing / sight.num_rivals,
            _LOG[sight.num_rivals],
            _LOG[min(1 + sight.frequency, MAX_LOGGED)],
        )
