"""Lookup of what followed the last tokens when they occurred before.

Owns the search and its index. It must not know policy: how much to propose, or whether, is
decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.speculation.config import PromptLookupConfig

#: Up to this many new tokens, one insert each beats building the n-grams by `zip`: extending two
#: lengths by one token takes 2 microseconds instead of 12 (measured, Python 3.11, x86-64).
FEW_TOKENS = 8


def find_draft(context: Sequence[int], config: PromptLookupConfig) -> list[int]:
    """Up to `config.max_draft` tokens that followed the most recent earlier occurrence of the
    context's suffix; empty without one.

    Suffixes of `ngram_max` tokens are tried first, then shorter ones down to `ngram_min`. An
    occurrence counts once at least one token follows it, so it may overlap the suffix. The most
    recent one is taken because a copy walks its source front to back.

    `[1, 2, 3, 9, 1, 2]` with lengths 2 to 3: no earlier `9 1 2`; `1 2` at 0; so `[3, 9, 1, 2]`.
    """
    length = len(context)
    for size in range(min(config.ngram_max, length - 1), config.ngram_min - 1, -1):
        suffix = list(context[length - size :])
        for end in range(length - 1, size - 1, -1):
            if list(context[end - size : end]) == suffix:
                return list(context[end : end + config.max_draft])
    return []


class NgramIndex:
    """Answers `find_draft` in one dictionary probe per suffix length.

    For each length it maps an n-gram to the position after its latest occurrence that has a token
    after it. At most one entry per token and length: memory is linear in context times lengths.
    """

    def __init__(self, config: PromptLookupConfig) -> None:
        self._tables: tuple[tuple[int, dict[tuple[int, ...], int]], ...] = tuple(
            (size, {}) for size in range(config.ngram_max, config.ngram_min - 1, -1)
        )
        self._length = 0

    def __len__(self) -> int:
        """Entries held, over all lengths."""
        return sum(len(table) for _, table in self._tables)

    def extend(self, context: Sequence[int]) -> None:
        """Index what `context` has beyond the last call. It is the whole context so far and
        begins with the context of the last call."""
        old, new = self._length, len(context)
        assert new >= old, (old, new)
        self._length = new
        if new == old:
            return
        for size, table in self._tables:
            # An n-gram that ends before position `end` has a follower once `end < new`; the last
            # call indexed every end below `old`.
            first = max(size, old)
            if new - first <= FEW_TOKENS:
                for end in range(first, new):
                    table[tuple(context[end - size : end])] = end
                continue
            window = context[first - size : new - 1]
            grams = zip(*(window[offset:] for offset in range(size)), strict=False)
            table.update(zip(grams, range(first, new), strict=True))

    def find(self, context: Sequence[int], config: PromptLookupConfig) -> list[int]:
        """`find_draft(context, config)`, for the context of the last `extend` and a config with
        the lengths this index was made for."""
        return self.propose(context, config.max_draft)

    def propose(self, context: Sequence[int], max_tokens: int) -> list[int]:
        """As `find`, with up to `max_tokens` tokens."""
        end = self.locate(context)
        return [] if end is None else list(context[end : end + max_tokens])

    def locate(self, context: Sequence[int]) -> int | None:
        """Where the tokens that `find` proposes begin in `context`; None without a match."""
        length = len(context)
        assert length == self._length, (length, self._length)
        for size, table in self._tables:
            end = table.get(tuple(context[length - size :])) if length > size else None
            if end is not None:
                return end
        return None
