"""Finding the texts of added tokens in a string.

Knows nothing of BPE: it cuts a string into plain text and token ids, and leaves the plain text to
the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Piece = str | int
"""Plain text (the text of a special token in it is plain too), or a special token's id."""

_VISIBLE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token found by its text before BPE sees it.

    `special`: a control token, found only where special tokens are asked for. `eats_left`,
    `eats_right`: white space beside it belongs to it (tokenizer.json's `lstrip`, `rstrip`).
    """

    text: str
    token_id: int
    special: bool = True
    eats_left: bool = False
    eats_right: bool = False


class SpecialSplitter:
    """Cuts strings at special tokens: leftmost first, the longest of those that start there."""

    def __init__(self, added: Iterable[AddedToken]) -> None:
        self._added = {token.text: token for token in added if token.text}
        longest_first = sorted(self._added, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.texts = tuple(text for text in longest_first if self._added[text].special)

    def split(self, text: str) -> list[Piece]:
        """`"a<|im_end|>b"` -> `["a", 2, "b"]`; no empty strings, no two strings in a row."""
        pieces: list[Piece] = []
        start = 0
        for match in self._pattern.finditer(text):
            token = self._added[match.group()]
            if not token.special:
                continue
            before = text[start : match.start()]
            _append(pieces, before.rstrip() if token.eats_left else before)
            pieces.append(token.token_id)
            start = match.end()
            if token.eats_right:
                visible = _VISIBLE.search(text, start)
                start = visible.start() if visible else len(text)
        _append(pieces, text[start:])
        return pieces

    def limited_to(self, special_texts: Iterable[str]) -> SpecialSplitter:
        """The same, but of the special tokens only these."""
        kept = set(special_texts)
        added = self._added.values()
        return SpecialSplitter(token for token in added if token.text in kept or not token.special)


def _append(pieces: list[Piece], text: str) -> None:
    if text:
        pieces.append(text)
