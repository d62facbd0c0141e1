"""Look-ups in GGUF's `tokenizer.ggml.*` metadata, with the key in every complaint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TypeVar, cast

from surefoot.errors import ModelError
from surefoot.text.vocabulary.special_text import AddedToken

PREFIX = "tokenizer.ggml."
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

T = TypeVar("T")


class TokenType(IntEnum):
    """GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def added_tokens(metadata: Mapping[str, object], tokens: Sequence[str]) -> list[AddedToken]:
    """Control and user-defined tokens, and whatever the file names as begin or end."""
    types = items(metadata, "token_type", int) or []
    if types and len(types) != len(tokens):
        raise ModelError(
            f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    special = {i for i, kind in enumerate(types) if kind in (TokenType.CONTROL, TokenType.UNKNOWN)}
    for key in ("bos_token_id", *END_KEYS):
        token_id = token_id_of(metadata, key, len(tokens))
        if token_id is not None:
            special.add(token_id)
    plain = {i for i, kind in enumerate(types) if kind == TokenType.USER_DEFINED} - special
    return [AddedToken(tokens[i], i, special=i in special) for i in sorted(special | plain)]


def get(metadata: Mapping[str, object], key: str, kind: type[T]) -> T | None:
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ModelError(f"{PREFIX}{key} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def items(metadata: Mapping[str, object], key: str, kind: type[T]) -> list[T] | None:
    """A list whose items are all of that kind; whole numbers will do for floats."""
    value = get(metadata, key, list)
    if value is None:
        return None
    allowed = {kind, int} if kind is float else {kind}
    for found in sorted(set(map(type, value)) - allowed, key=repr):
        raise ModelError(
            f"{PREFIX}{key} holds a {found.__name__}; all its items must be {kind.__name__}"
        )
    return cast(list[T], value)


def require_items(metadata: Mapping[str, object], key: str, kind: type[T]) -> list[T]:
    value = items(metadata, key, kind)
    if value is None:
        raise ModelError(f"{PREFIX}{key} is missing")
    return value


def token_id_of(metadata: Mapping[str, object], key: str, num_tokens: int) -> int | None:
    token_id = get(metadata, key, int)
    if token_id is not None and not 0 <= token_id < num_tokens:
        raise ModelError(f"{PREFIX}{key} is {token_id}; the vocabulary has {num_tokens} tokens")
    return token_id
