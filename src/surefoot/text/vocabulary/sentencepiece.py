"""A vocabulary from GGUF metadata: SentencePiece's BPE with scores, the `llama` tokenizer model.

SentencePiece merges, again and again, the neighbours whose joint text is the token of the highest
score. That is BPE with a merge for every way to cut a token into two tokens, ordered by the
token's score; what no merge reaches is spelled in `<0xAB>` byte tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import normalizers
from tokenizers.models import BPE

from surefoot.errors import ModelError
from surefoot.text.vocabulary.byte_alphabet import sentencepiece_bytes
from surefoot.text.vocabulary.gguf_keys import (
    END_KEYS,
    TokenType,
    added_tokens,
    get,
    require_items,
    token_id_of,
)
from surefoot.text.vocabulary.vocabulary import Vocabulary, well_known_end_ids

SPACE = "\u2581"
"""How a token's text spells a space."""


def sentencepiece_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Raises `ModelError` naming the key at fault. A file that does not say begins prompts with
    its begin token and puts a space before text, as SentencePiece does."""
    tokens = require_items(metadata, "tokens", str)
    scores = require_items(metadata, "scores", float)
    types = require_items(metadata, "token_type", int)
    if not len(tokens) == len(scores) == len(types):
        raise ModelError(
            f"tokenizer.ggml has {len(tokens)} tokens, {len(scores)} scores and {len(types)} types"
        )
    added = added_tokens(metadata, tokens)
    ends = {key: token_id_of(metadata, key, len(tokens)) for key in END_KEYS}
    bos_id = token_id_of(metadata, "bos_token_id", len(tokens))
    space_prefix = get(metadata, "add_space_prefix", bool) is not False
    backend = _backend(metadata, tokens, scores, types, space_prefix)
    backend.add_tokens(
        [
            tokenizers.AddedToken(token.text, special=False, normalized=False)
            for token in added
            if not token.special
        ]
    )
    return Vocabulary(
        backend=backend,
        tokens=tokens,
        added=added,
        to_bytes=sentencepiece_bytes,
        bos_id=bos_id,
        eos_id=ends["eos_token_id"],
        add_bos=bos_id is not None and get(metadata, "add_bos_token", bool) is not False,
        end_ids=well_known_end_ids(added) | {i for i in ends.values() if i is not None},
        strips_leading_space=space_prefix,
    )


def _backend(
    metadata: Mapping[str, object],
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    space_prefix: bool,
) -> tokenizers.Tokenizer:
    unknown_id = token_id_of(metadata, "unknown_token_id", len(tokens))
    pieces = {
        text: score
        for text, score, kind in zip(tokens, scores, types, strict=True)
        if kind in (TokenType.NORMAL, TokenType.USER_DEFINED)
    }
    try:
        model = BPE(
            vocab={text: token_id for token_id, text in enumerate(tokens)},
            merges=merges_by_score(pieces),
            unk_token=None if unknown_id is None else tokens[unknown_id],
            fuse_unk=True,
            byte_fallback=True,
        )
    except Exception as error:  # the binding raises bare Exception for what it cannot use
        reason = " ".join(str(error).split())
        raise ModelError(f"tokenizer.ggml.tokens cannot be used: {reason}") from error
    backend = tokenizers.Tokenizer(model)
    to_space = normalizers.Replace(" ", SPACE)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE), to_space]) if space_prefix else to_space
    )
    return backend


def merges_by_score(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way to cut a piece into two pieces, pieces of the highest score first.

    >>> merges_by_score({"a": 0, "b": 0, "ab": -1, "abb": -2, "bb": -3})
    [('a', 'b'), ('ab', 'b'), ('a', 'bb'), ('b', 'b')]
    """
    known = frozenset(pieces)
    merges: list[tuple[str, str]] = []
    for text in sorted(known, key=lambda text: (-pieces[text], text)):
        # A plain loop: a vocabulary of 262,144 tokens has two million cuts to try at every start.
        for at in range(len(text) - 1, 0, -1):
            left = text[:at]
            if left in known:
                right = text[at:]
                if right in known:
                    merges.append((left, right))
    return merges
