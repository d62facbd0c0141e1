"""The row's context and the earlier occurrence that lookup would propose from, at every position.

Owns context, index and the two features that tell good proposals from bad ones: how long the
context has run along its match, and how the last looked-up tokens fared. It must not know prices,
chances or rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.speculation.acceptance import cut_after_end
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.ngram import NgramIndex

#: Match lengths beyond this say nothing more.
MAX_RUN = 32

#: Weight of the newest looked-up token in `fate`: about the last eight count.
FATE_WEIGHT = 0.12

#: `fate` of a row that has looked nothing up: prose and copies lie on either side.
FIRST_FATE = 0.5


class MatchTracker:
    """Told every token, it knows what lookup proposes next and whether its last proposal came
    true, at no model cost.

    `source` is where the proposed tokens begin in `context` (None without a match), `run` how many
    tokens before them equal the context's last ones, up to `MAX_RUN`. `fate` is a moving average
    of whether the token proposed at a position came true, over the positions that had one.
    """

    def __init__(self, config: PromptLookupConfig, context: list[int]) -> None:
        self.context = context
        self.source: int | None = None
        self.run = 0
        self.fate = FIRST_FATE
        self._index = NgramIndex(config)
        self._find()

    def advance(self, token: int) -> bool | None:
        """`token` was emitted. Whether lookup would have proposed it; None without a match."""
        source = self.source
        landed = None if source is None else self.context[source] == token
        self.context.append(token)
        if landed is not None:
            self.fate += FATE_WEIGHT * (landed - self.fate)
        self._find(source + 1 if landed and source is not None else None)
        return landed

    def proposal(self, num_tokens: int, end_ids: frozenset[int] = frozenset()) -> list[int]:
        """Up to `num_tokens` tokens, cut after an end token. A match that ends with the context
        goes on with its own tokens, as a text of that period would."""
        if self.source is None:
            return []
        followed = self.context[self.source : self.source + num_tokens]
        while len(followed) < num_tokens:
            followed += followed[: num_tokens - len(followed)]
        return list(cut_after_end(followed, end_ids))

    def _find(self, onward: int | None = None) -> None:
        """Look the match up. `onward`: where it lies if the last one goes on."""
        context = self.context
        self._index.extend(context)
        self.source = self._index.locate(context)
        if self.source is None:
            self.run = 0
        elif self.source == onward:
            self.run = min(self.run + 1, MAX_RUN)
        else:
            self.run = _common_run(context, self.source)


def _common_run(context: Sequence[int], source: int) -> int:
    """Tokens before `source` that equal the context's last ones."""
    end, run = len(context), 0
    limit = min(MAX_RUN, source)
    while run < limit and context[source - 1 - run] == context[end - 1 - run]:
        run += 1
    return run
