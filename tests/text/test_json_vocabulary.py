"""tokenizer.json: the same ids as the same vocabulary from GGUF, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.tiny_text import tiny_metadata, tiny_tokenizer
from surefoot.errors import ModelError
from surefoot.text.tokenizer import Tokenizer

NUM_TINY = 3 + 256 + 8 + 1


def json_of(tokenizer_json: Mapping[str, Any]) -> str:
    base = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
    return json.dumps(base | dict(tokenizer_json))


def byte_level_json() -> str:
    """The tiny vocabulary as a tokenizer.json that adds a begin token."""
    tokens = list(tiny_metadata()["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    added = [
        {"id": i, "content": tokens[i], "special": i < 3, "single_word": False}
        | {"lstrip": False, "rstrip": i == 0, "normalized": False}
        for i in (0, 1, 2, NUM_TINY - 1)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    template = [{"SpecialToken": {"id": tokens[1], "type_id": 0}}]
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}]
    model = {
        "type": "BPE",
        "vocab": {text: i for i, text in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in tiny_metadata()["tokenizer.ggml.merges"]],  # type: ignore[attr-defined]
    }
    return json_of(
        {
            "added_tokens": added,
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": template + sequence,
                "pair": template + sequence,
                "special_tokens": {tokens[1]: {"id": tokens[1], "ids": [1], "tokens": [tokens[1]]}},
            },
            "model": model,
        }
    )


@given(st.text())
def test_tokenizer_json_agrees_with_the_same_vocabulary_from_gguf(text: str) -> None:
    expected = GPT2.encode(text, parse_special=False)
    assert FROM_JSON.encode(text, parse_special=False) == expected


GPT2 = tiny_tokenizer(pre="gpt-2")
FROM_JSON = Tokenizer.from_tokenizer_json(byte_level_json(), eos_text="<|im_end|>", end_ids=[7])


def test_tokenizer_json_head(tmp_path: Path) -> None:
    assert (FROM_JSON.bos_id, FROM_JSON.eos_id, FROM_JSON.add_bos) == (1, 2, True)
    assert FROM_JSON.end_ids == {0, 2, 7}
    assert FROM_JSON.special_ids == {0, 1, 2}
    assert FROM_JSON.vocab_size == NUM_TINY
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_level_json(), encoding="utf-8")
    from_file = Tokenizer.from_tokenizer_json(path, add_bos=False)
    assert (from_file.eos_id, from_file.add_bos) == (None, False)


def test_tokenizer_json_special_token_that_eats_white_space() -> None:
    a, b = 3 + ord("a"), 3 + ord("b")
    assert FROM_JSON.encode("a<|endoftext|> \n b", parse_special=True) == [a, 0, b]
    assert FROM_JSON.encode("a<|endoftext|>  ", parse_special=True) == [a, 0]
    assert FROM_JSON.encode("<think>", parse_special=False) == [NUM_TINY - 1]


def test_sentencepiece_json_strips_the_first_space_only() -> None:
    vocab = {"<unk>": 0, "<s>": 1, "\u2581a": 2, "a": 3, "\u2581": 4, "<0xC3>": 5, "<0xA9>": 6}
    source = json_of(
        {
            "added_tokens": [],
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            "model": {"type": "BPE", "vocab": vocab, "merges": [["\u2581", "a"]]},
        }
    )
    tokenizer = Tokenizer.from_tokenizer_json(source)
    assert tokenizer.decode([2, 2, 5, 6, 3]) == "a aéa"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "cannot be used"),
        ('{"model": {"type": "BPE"}}', "cannot be used"),
        (json_of({"model": {"type": "BPE", "vocab": {}, "merges": []}}), "decoder none"),
    ],
)
def test_bad_tokenizer_json_is_refused(source: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_tokenizer_json(source)


def test_tokenizer_json_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^tokenizer\.json cannot be read"):
        Tokenizer.from_tokenizer_json(tmp_path / "tokenizer.json")
    with pytest.raises(ModelError, match="'<nope>' is not in"):
        Tokenizer.from_tokenizer_json(byte_level_json(), bos_text="<nope>")
