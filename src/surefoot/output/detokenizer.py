"""Tokens to text, one at a time, in whole characters.

Pure state; knows nothing of stop strings or requests.
"""

from __future__ import annotations

import codecs
from collections.abc import Set as AbstractSet
from typing import Protocol


class TokenSpelling(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def special_ids(self) -> AbstractSet[int]: ...

    @property
    def strips_leading_space(self) -> bool: ...

    def token_bytes(self, token_id: int) -> bytes: ...


class Detokenizer:
    """Holds back the bytes of a character that is not complete yet.

    Bytes that can be part of no character become U+FFFD as soon as that is known. Special tokens
    give no text and leave the bytes around them together. The pushes and the flush together are
    `Tokenizer.decode` of the same ids.
    """

    def __init__(self, tokens: TokenSpelling, *, skip_special: bool = True) -> None:
        self._tokens = tokens
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip_next_space = tokens.strips_leading_space

    def push(self, token_id: int) -> str:
        """The characters that this token completes (may be empty)."""
        if self._skip_special and token_id in self._tokens.special_ids:
            return ""
        text = self._decoder.decode(self._tokens.token_bytes(token_id))
        if self._strip_next_space and text:
            self._strip_next_space = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """The end of the tokens. A character that is still incomplete was cut by a limit on
        tokens, not written wrong by the model: it is dropped, so nothing is left to say."""
        self._decoder.reset()
        return ""
