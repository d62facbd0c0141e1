"""How often looked-up tokens came true, by situation: what a row knows and what the server knows.

Owns the counts and the chances read off them. It must not know tokens or prices.

A situation is a pair of classes: how long the context has run along its match, and how the last
looked-up tokens fared. Each counted token is a fact that decoding gave for free, whether or not a
round verified it: full information, so nothing needs to be tried to be known.
"""

from __future__ import annotations

from surefoot.speculation.goodput_match import FATE_WEIGHT, MAX_RUN

#: Least `run` of each class after the first.
RUN_STEPS = (3, 4, 5, 6, 8, 12, 20)
#: Least `fate` of each class after the first.
FATE_STEPS = (0.3, 0.45, 0.6, 0.75, 0.9)

NUM_RUNS, NUM_FATES = len(RUN_STEPS) + 1, len(FATE_STEPS) + 1

#: Looked-up tokens that `SHIPPED` counts for in each situation, against what the server sees.
SHIPPED_WEIGHT = 100.0
#: Tokens a situation remembers server-wide; older ones fade.
SERVER_MEMORY = 400.0
#: Tokens that the server's chance counts for against the row's own.
ROW_TRUST = 12.0

#: `SHIPPED[run class][fate class]`: how often looked-up tokens came true in replies of the default
#: model, greedy and sampled, to the prompts that the policy was tuned on
#: (`docs/benchmark_results/replay-goodput-2026-11-29`).
SHIPPED: tuple[tuple[float, ...], ...] = (
    (0.35, 0.38, 0.51, 0.59, 0.58, 0.58),
    (0.49, 0.44, 0.57, 0.67, 0.70, 0.70),
    (0.50, 0.58, 0.62, 0.74, 0.75, 0.81),
    (0.65, 0.61, 0.65, 0.75, 0.75, 0.75),
    (0.79, 0.77, 0.75, 0.80, 0.80, 0.89),
    (0.87, 0.87, 0.81, 0.81, 0.88, 0.91),
    (0.90, 0.90, 0.90, 0.90, 0.90, 0.90),
    (0.98, 0.98, 0.98, 0.95, 0.97, 0.98),
)

_RUN_CLASS = tuple(sum(run >= step for step in RUN_STEPS) for run in range(MAX_RUN + 1))


def situation(run: int, fate: float) -> int:
    """The number of a situation, `run` being at most `MAX_RUN`."""
    return _RUN_CLASS[run] * NUM_FATES + sum(fate >= step for step in FATE_STEPS)


class ServerPrior:
    """Counts over all rows of a server, on top of the shipped chances. One thread tells it.

    It changes which rounds look worthwhile and never what a row may lose: that is the ledger's.
    """

    def __init__(self) -> None:
        shipped = [chance for row in SHIPPED for chance in row]
        self._shipped = shipped
        self._landed = [0.0] * len(shipped)
        self._seen = [0.0] * len(shipped)

    def record(self, where: int, landed: bool) -> None:
        """One looked-up token came true, or did not."""
        self._landed[where] += landed
        self._seen[where] += 1.0
        if self._seen[where] >= SERVER_MEMORY:
            self._landed[where] /= 2.0
            self._seen[where] /= 2.0

    def chance(self, where: int) -> float:
        """That the next looked-up token comes true."""
        landed = self._landed[where] + SHIPPED_WEIGHT * self._shipped[where]
        return landed / (self._seen[where] + SHIPPED_WEIGHT)


class RowCounts:
    """One row's counts over the server's."""

    def __init__(self, prior: ServerPrior) -> None:
        self._prior = prior
        size = NUM_RUNS * NUM_FATES
        self._landed = [0.0] * size
        self._seen = [0.0] * size

    def record(self, run: int, fate: float, landed: bool) -> None:
        """What the lookup of this situation proposed came true, or did not."""
        where = situation(run, fate)
        self._landed[where] += landed
        self._seen[where] += 1.0
        self._prior.record(where, landed)

    def chance(self, run: int, fate: float) -> float:
        """That the token looked up in this situation comes true."""
        where = situation(run, fate)
        own = self._landed[where] + ROW_TRUST * self._prior.chance(where)
        return own / (self._seen[where] + ROW_TRUST)

    def landing(self, run: int, fate: float, num_drafts: int) -> list[float]:
        """`[i]`: the chance that the first `i + 1` of a proposal's tokens all come true. Each
        that does makes the run longer and the fate better for the next."""
        chances = []
        together = 1.0
        for _ in range(num_drafts):
            together *= self.chance(run, fate)
            chances.append(together)
            run = min(run + 1, MAX_RUN)
            fate += FATE_WEIGHT * (1.0 - fate)
        return chances
