"""The row's context and the earlier occurrence that lookup would propose from, at every position.

Owns context, index and what can be seen of a proposal before it is verified. It must not know
prices, chances or rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from surefoot.speculation.acceptance import cut_after_end
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.lookup import NgramIndex

#: Match lengths beyond this say nothing more.
MAX_RUN = 32

#: Shortest suffix looked up, whatever `ngram_min` says: a single token that occurred before is a
#: poor match for the governors, but here it is priced for what it is. By replay it adds a fifth to
#: the gain on sampled prose (`docs/adr/0006-goodput.md`).
SHORTEST = 1

#: A match that has run for so many tokens is kept while it goes on, whatever more recent occurrence
#: the last few of them have: chosen by replay, `docs/adr/0006-goodput.md`.
KEPT_RUN = 6

#: Earlier occurrences whose followers are compared, and how many are looked at to find them.
MAX_RIVALS = 8
MAX_VISITED = 24


class Sight(NamedTuple):
    """What is seen of one proposed token, all before it having come true. `run`: tokens that the
    context shares with the match. `num_rivals`: recent occurrences of the same suffix, the match
    counted; `num_agreeing`: those that this token followed. `frequency`: how often the context
    holds the token."""

    run: int
    num_rivals: int
    num_agreeing: int
    frequency: int


class MatchTracker:
    """Told every token, it knows what lookup proposes next and whether its last proposal came
    true, at no model cost.

    `source` is where the proposed tokens begin in `context` (None without a match), `run` how many
    tokens before them equal the context's last ones, up to `MAX_RUN`.
    """

    def __init__(self, config: PromptLookupConfig, context: list[int]) -> None:
        self.context = context
        self.source: int | None = None
        self.run = 0
        self._ngram_max = config.ngram_max
        self._index = NgramIndex(replace(config, ngram_min=SHORTEST))
        self._frequency = Counter(context)
        # Where each token stood last, the latest apart, and where before that.
        self._last_end: dict[int, int] = {}
        self._earlier: dict[int, int] = {}
        self._linked = SHORTEST
        self._first: Sight | None = None
        self._find(None)

    def advance(self, token: int) -> bool | None:
        """`token` was emitted. Whether lookup would have proposed it; None without a match."""
        source = self.source
        landed = None if source is None else self.context[source] == token
        self.context.append(token)
        self._frequency[token] += 1
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

    def first_sight(self) -> Sight | None:
        """What is seen of the first token of a proposal; None without a match."""
        if self._first is None:
            self._first = next(self.sights(1), None)
        return self._first

    def sights(self, num_tokens: int) -> Iterator[Sight]:
        """What is seen of each token of `proposal(num_tokens)`."""
        tokens = self.proposal(num_tokens)
        rivals = self._rivals() if tokens else []
        length = len(self.context)
        for ahead, token in enumerate(tokens):
            agreeing = []
            for end in rivals:
                place = end + ahead
                follower = self.context[place] if place < length else tokens[place - length]
                if follower == token:
                    agreeing.append(end)
            sight = Sight(
                min(self.run + ahead, MAX_RUN), len(rivals), len(agreeing), self._frequency[token]
            )
            if not ahead:
                self._first = sight
            yield sight
            rivals = agreeing

    def _find(self, onward: int | None) -> None:
        """Look the match up. `onward`: where it lies if the last one goes on."""
        context = self.context
        self._first = None
        self._index.extend(context)
        self._link()
        if onward is not None and self.run >= KEPT_RUN:
            self.source = onward
        else:
            self.source = self._index.locate(context)
        if self.source is None:
            self.run = 0
        elif self.source == onward:
            self.run = min(self.run + 1, MAX_RUN)
        else:
            self.run = self._common_run(self.source)

    def _link(self) -> None:
        """Chain the places of each token that have a follower by now."""
        context = self.context
        for end in range(self._linked, len(context)):
            token = context[end - 1]
            before = self._last_end.get(token)
            if before is not None:
                self._earlier[end] = before
            self._last_end[token] = end
        self._linked = max(self._linked, len(context))

    def _rivals(self) -> list[int]:
        """Where the latest occurrences end that share as much of the context's suffix as lookup
        compares, the match among them."""
        context, source = self.context, self.source
        assert source is not None, "only a match has rivals"
        length = min(self.run, self._ngram_max)
        suffix = context[-length:]
        rivals = [source]
        end = self._last_end.get(context[-1])
        for _ in range(MAX_VISITED):
            if end is None or len(rivals) == MAX_RIVALS:
                break
            if end != source and end >= length and context[end - length : end] == suffix:
                rivals.append(end)
            end = self._earlier.get(end)
        return rivals

    def _common_run(self, source: int) -> int:
        """Tokens before `source` that equal the context's last ones."""
        context = self.context
        end, run, limit = len(context), 0, min(MAX_RUN, source)
        while run < limit and context[source - 1 - run] == context[end - 1 - run]:
            run += 1
        return run
