"""A vocabulary from a Hugging Face `tokenizer.json`: byte-level or SentencePiece-like BPE."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from surefoot.errors import ModelError
from surefoot.text.vocabulary.byte_alphabet import TokenBytes, byte_level_bytes, sentencepiece_bytes
from surefoot.text.vocabulary.special_text import AddedToken
from surefoot.text.vocabulary.vocabulary import Vocabulary, well_known_end_ids


def json_vocabulary(
    source: Path | str,
    *,
    bos_text: str | None = None,
    eos_text: str | None = None,
    add_bos: bool | None = None,
    end_ids: Iterable[int] = (),
) -> Vocabulary:
    """`source`: the file (a `Path`) or its text. The file itself does not name its begin and end
    tokens: the texts come from `tokenizer_config.json`, `end_ids` from `generation_config.json`.
    `add_bos` None: what the file's own post-processor does. Raises `ModelError`."""
    text = _read(source)
    backend, layout = _parse(text)
    added = [_added_token(entry) for entry in layout.get("added_tokens") or []]
    begin = backend.encode("", add_special_tokens=True).ids[:1]
    bos_id = _id_of(backend, bos_text) if bos_text else (begin[0] if begin else None)
    eos_id = _id_of(backend, eos_text) if eos_text else None
    backend.encode_special_tokens = True
    steps = _decoder_steps(layout)
    ends = well_known_end_ids(added) | frozenset(end_ids)
    return Vocabulary(
        backend=backend,
        tokens=_token_texts(backend),
        added=added,
        to_bytes=_byte_rule(steps),
        bos_id=bos_id,
        eos_id=eos_id,
        add_bos=bos_id is not None and (begin == [bos_id] if add_bos is None else add_bos),
        end_ids=ends if eos_id is None else ends | {eos_id},
        strips_leading_space=any(step.get("type") == "Strip" for step in steps),
    )


def _read(source: Path | str) -> str:
    if isinstance(source, str):
        return source
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{source.name} cannot be read: {error}") from error


def _parse(text: str) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    try:
        return tokenizers.Tokenizer.from_str(text), json.loads(text)
    except Exception as error:  # the binding raises bare Exception for a bad file
        raise ModelError(f"tokenizer.json cannot be used: {error}") from error


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    return AddedToken(
        text=entry["content"],
        token_id=entry["id"],
        special=bool(entry.get("special")),
        eats_left=bool(entry.get("lstrip")),
        eats_right=bool(entry.get("rstrip")),
    )


def _id_of(backend: tokenizers.Tokenizer, text: str) -> int:
    token_id = backend.token_to_id(text)
    if token_id is None:
        raise ModelError(f"token {text!r} is not in tokenizer.json")
    return token_id


def _token_texts(backend: tokenizers.Tokenizer) -> list[str]:
    vocab = backend.get_vocab(with_added_tokens=True)
    texts = [""] * (max(vocab.values(), default=-1) + 1)
    for text, token_id in vocab.items():
        texts[token_id] = text
    return texts


def _decoder_steps(layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    decoder = layout.get("decoder") or {}
    return decoder.get("decoders") or ([decoder] if decoder else [])


def _byte_rule(steps: list[dict[str, Any]]) -> TokenBytes:
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return byte_level_bytes
    if "ByteFallback" in kinds:
        return sentencepiece_bytes
    names = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
    raise ModelError(
        f"tokenizer.json has decoder {names}, which is not supported; "
        "supported: ByteLevel, ByteFallback"
    )
