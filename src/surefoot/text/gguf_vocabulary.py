"""A vocabulary from GGUF metadata: byte-level BPE, the `gpt2` tokenizer model.

Knows GGUF's key names and nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TypeVar, cast

import tokenizers
from tokenizers.models import BPE

from surefoot.errors import ModelError
from surefoot.text.byte_alphabet import byte_level_bytes
from surefoot.text.pre_tokenizers import PRE_TOKENIZATIONS, PreTokenization, pre_tokenization
from surefoot.text.special_text import AddedToken
from surefoot.text.vocabulary import Vocabulary, well_known_end_ids

_PREFIX = "tokenizer.ggml."
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

T = TypeVar("T")


class _TokenType(IntEnum):
    """GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


def gguf_vocabulary(metadata: Mapping[str, object], pre: str | None = None) -> Vocabulary:
    """`pre` overrides `tokenizer.ggml.pre`. Raises `ModelError` naming the key at fault."""
    model = _get(metadata, "model", str)
    if model != "gpt2":
        raise ModelError(
            f"tokenizer model {model!r} (tokenizer.ggml.model) is not supported; supported: gpt2"
        )
    rule = _pre_tokenization(metadata, pre)
    tokens = cast(Sequence[str], _require(metadata, "tokens", list))
    added = _added_tokens(metadata, tokens)
    ends = {key: _token_id(metadata, key, len(tokens)) for key in _END_KEYS}
    add_bos = _get(metadata, "add_bos_token", bool)
    bos_id = _token_id(metadata, "bos_token_id", len(tokens))
    return Vocabulary(
        backend=_backend(metadata, tokens, added, rule),
        tokens=tokens,
        added=added,
        to_bytes=byte_level_bytes,
        bos_id=bos_id,
        eos_id=ends["eos_token_id"],
        add_bos=bos_id is not None and (rule.add_bos if add_bos is None else add_bos),
        end_ids=well_known_end_ids(added) | {i for i in ends.values() if i is not None},
    )


def _pre_tokenization(metadata: Mapping[str, object], pre: str | None) -> PreTokenization:
    name = pre or _get(metadata, "pre", str)
    if not name:
        raise ModelError(
            "the file does not name its pre-tokenizer (tokenizer.ggml.pre is missing); "
            f"give it by hand, one of: {', '.join(sorted(PRE_TOKENIZATIONS))}"
        )
    return pre_tokenization(name)


def _added_tokens(metadata: Mapping[str, object], tokens: Sequence[str]) -> list[AddedToken]:
    """Control and user-defined tokens, and whatever the file names as begin or end."""
    types = cast(Sequence[int], _get(metadata, "token_type", list) or [])
    if types and len(types) != len(tokens):
        raise ModelError(
            f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    special = {
        i for i, kind in enumerate(types) if kind in (_TokenType.CONTROL, _TokenType.UNKNOWN)
    }
    for key in ("bos_token_id", *_END_KEYS):
        token_id = _token_id(metadata, key, len(tokens))
        if token_id is not None:
            special.add(token_id)
    plain = {i for i, kind in enumerate(types) if kind == _TokenType.USER_DEFINED} - special
    return [AddedToken(tokens[i], i, special=i in special) for i in sorted(special | plain)]


def _backend(
    metadata: Mapping[str, object],
    tokens: Sequence[str],
    added: Sequence[AddedToken],
    rule: PreTokenization,
) -> tokenizers.Tokenizer:
    merges = cast(Sequence[str], _require(metadata, "merges", list))
    vocab = {text: token_id for token_id, text in enumerate(tokens)}
    if rule.ignore_merges:
        _hide_control_tokens(vocab, added)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        model = BPE(
            vocab=vocab,
            merges=cast(list[tuple[str, str]], pairs),
            ignore_merges=rule.ignore_merges,
        )
    except Exception as error:  # the binding raises bare Exception for a bad merge
        raise ModelError(f"tokenizer.ggml.merges cannot be used: {error}") from error
    backend = tokenizers.Tokenizer(model)
    normalizer = rule.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rule.pre_tokenizer()
    backend.add_tokens(
        [
            tokenizers.AddedToken(token.text, special=False, normalized=False)
            for token in added
            if not token.special
        ]
    )
    return backend


def _hide_control_tokens(vocab: dict[str, int], added: Sequence[AddedToken]) -> None:
    """Rename control tokens to what no text can spell: under `ignore_merges` plain text that
    happens to be one piece would otherwise become the control token. A byte-level piece never
    holds a NUL character (that byte is spelled U+0100)."""
    for token in added:
        if token.special and vocab.get(token.text) == token.token_id:
            del vocab[token.text]
            vocab[f"\0{token.token_id}"] = token.token_id


def _get(metadata: Mapping[str, object], key: str, kind: type[T]) -> T | None:
    value = metadata.get(_PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, kind):
        raise ModelError(f"{_PREFIX}{key} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _require(metadata: Mapping[str, object], key: str, kind: type[T]) -> T:
    value = _get(metadata, key, kind)
    if value is None:
        raise ModelError(f"{_PREFIX}{key} is missing")
    return value


def _token_id(metadata: Mapping[str, object], key: str, num_tokens: int) -> int | None:
    token_id = _get(metadata, key, int)
    if token_id is not None and not 0 <= token_id < num_tokens:
        raise ModelError(f"{_PREFIX}{key} is {token_id}; the vocabulary has {num_tokens} tokens")
    return token_id
