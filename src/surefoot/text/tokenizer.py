"""Text to token ids and back.

Owns one vocabulary and its end tokens; knows nothing of requests, templates or streams.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import tokenizers

from surefoot.output.detokenizer import Detokenizer
from surefoot.text.vocabulary.gguf import gguf_vocabulary
from surefoot.text.vocabulary.json import json_vocabulary
from surefoot.text.vocabulary.special_text import Piece, SpecialSplitter
from surefoot.text.vocabulary.vocabulary import Vocabulary


class Tokenizer:
    """Encodes and decodes; safe to use from several threads at once.

    Special tokens (control tokens) are found in text only on request; user-defined tokens always
    are. Lone surrogates become U+FFFD. A byte without a token is dropped.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._backend = vocabulary.backend
        self.splitter = SpecialSplitter(vocabulary.added)
        self.special_ids = frozenset(t.token_id for t in vocabulary.added if t.special)
        # Stands for "a special token is here" in the one string the backend sees, so that pieces
        # are cut there and nowhere else. Random: no caller's text can hold it.
        self._mark = f"\ufdd0{secrets.token_hex(16)}\ufdd1"
        self._backend.add_tokens(
            [tokenizers.AddedToken(self._mark, special=False, normalized=False)]
        )
        self._mark_id = self._backend.token_to_id(self._mark)

    @classmethod
    def from_gguf_metadata(
        cls, metadata: Mapping[str, object], *, pre: str | None = None
    ) -> Tokenizer:
        """From metadata by GGUF's names. `pre` names the pre-tokenizer by hand, over the file's
        `tokenizer.ggml.pre`; without either, or with a name not in `PRE_TOKENIZATIONS`,
        `ModelError`. So for a key that is missing, of the wrong type or out of range."""
        return cls(gguf_vocabulary(metadata, pre))

    @classmethod
    def from_tokenizer_json(
        cls,
        source: Path | str,
        *,
        bos_text: str | None = None,
        eos_text: str | None = None,
        add_bos: bool | None = None,
        end_ids: Iterable[int] = (),
    ) -> Tokenizer:
        """From Hugging Face's `tokenizer.json`: see `json_vocabulary`."""
        return cls(
            json_vocabulary(
                source, bos_text=bos_text, eos_text=eos_text, add_bos=add_bos, end_ids=end_ids
            )
        )

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    @property
    def add_bos(self) -> bool:
        """A prompt of this model starts with `bos_id`."""
        return self._vocabulary.add_bos

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a reply: eos, eot, eom and the well-known end-of-turn texts."""
        return self._vocabulary.end_ids

    def also_end_at(self, end_ids: Iterable[int]) -> None:
        """Further tokens that end a reply, such as the one that the chat template ends a turn
        with. Call it before anybody reads `end_ids`."""
        self._vocabulary = replace(self._vocabulary, end_ids=self.end_ids | frozenset(end_ids))

    @cached_property
    def max_chars_per_token(self) -> int:
        """A text of n tokens has at most n times so many characters. Three times the longest
        token's bytes where text is normalized first: composition makes one character of three
        (Hangul). For refusing what cannot fit before it is encoded."""
        longest = max(len(self.token_bytes(token_id)) for token_id in range(self.vocab_size))
        return longest if self._backend.normalizer is None else 3 * longest

    @property
    def strips_leading_space(self) -> bool:
        return self._vocabulary.strips_leading_space

    def encode(self, text: str, *, parse_special: bool, add_bos: bool = False) -> list[int]:
        """`parse_special`: the text of a special token is that token, else it is plain text.
        `add_bos`: start with `bos_id`, if there is one."""
        pieces = self.splitter.split(text) if parse_special else [text]
        ids = self.encode_pieces(pieces)
        return [self.bos_id, *ids] if add_bos and self.bos_id is not None else ids

    def encode_pieces(self, pieces: Iterable[Piece]) -> list[int]:
        """Plain text and special ids in turn. Releases the GIL while it works."""
        parts = list(pieces)
        text = "".join(part if isinstance(part, str) else self._mark for part in parts)
        # encode_batch_fast computes no offsets, and lets other threads run; encode does neither.
        encoding = self._backend.encode_batch_fast([_utf8(text)], add_special_tokens=False)[0]
        ids: list[int] = encoding.ids
        specials = iter([part for part in parts if isinstance(part, int)])
        mark_id = self._mark_id
        return [next(specials) if token_id == mark_id else token_id for token_id in ids]

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it (bytes in the vocabulary's own alphabet); empty
        for an id beyond it."""
        tokens = self._vocabulary.tokens
        return tokens[token_id] if 0 <= token_id < len(tokens) else ""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; a special token's are those of its text."""
        text = self.token_text(token_id)
        if token_id in self.special_ids:
            return text.encode("utf-8")
        return self._vocabulary.to_bytes(text)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Bytes that are no UTF-8 become U+FFFD; an incomplete character at the very end is
        left out, as it is at the end of a stream."""
        detokenizer = Detokenizer(self, skip_special=skip_special)
        return "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.flush()


def _utf8(text: str) -> str:
    """The text with lone surrogates (JSON can spell them) replaced, so that it has UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
