"""SentencePiece vocabularies of GGUF: token ids as SentencePiece's own merging gives them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import ModelError
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary.sentencepiece import merges_by_score

SPACE = "\u2581"
PIECES = (
    "ab", "abc", "bc", "bb", f"{SPACE}a", f"{SPACE}ab", "abab", "ca", f"{SPACE}{SPACE}", "\u00e9a",
)  # fmt: skip
LETTERS = (SPACE, "a", "b", "c", "\u00e9", "\n")
USER_DEFINED = ("   ", "<tag>")
CONTROL = ("<s>", "</s>", "<end_of_turn>")
UNKNOWN = "<unk>"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

TOKENS = (UNKNOWN, *CONTROL, *BYTES, *PIECES, *LETTERS, *USER_DEFINED)
IDS = {text: token_id for token_id, text in enumerate(TOKENS)}
SCORES = {text: -float(place) for place, text in enumerate(PIECES)} | dict.fromkeys(LETTERS, -99.0)


def metadata(**changes: Any) -> dict[str, object]:
    kinds = [2, *[3] * len(CONTROL), *[6] * len(BYTES), *[1] * (len(PIECES) + len(LETTERS)), 4, 4]
    keys: dict[str, object] = {
        "model": "llama",
        "tokens": list(TOKENS),
        "scores": [SCORES.get(text, 0.0) for text in TOKENS],
        "token_type": kinds,
        "bos_token_id": IDS["<s>"],
        "eos_token_id": IDS["</s>"],
        "unknown_token_id": IDS[UNKNOWN],
        "add_space_prefix": False,
    }
    keys |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def sentencepiece(text: str) -> list[int]:
    """The algorithm as its paper has it: join the neighbours of the best score until none join."""
    symbols = list(text.replace(" ", SPACE))
    while True:
        scores = [SCORES.get(a + b) for a, b in itertools.pairwise(symbols)]
        best = max((score for score in scores if score is not None), default=None)
        if best is None:
            break
        at = scores.index(best)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids: list[int] = []
    for symbol in symbols:
        spelled = [IDS[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        ids += [IDS[symbol]] if symbol in IDS else spelled
    return ids


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abc \u00e9\n\u6f22\U0001f525", max_size=24))
def test_ids_are_those_of_the_algorithm(text: str) -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata())
    while "   " in text:  # a user-defined token, cut out before anything is joined
        text = text.replace("   ", " ")
    ids = tokenizer.encode(text, parse_special=False)
    assert ids == sentencepiece(text)
    assert tokenizer.decode(ids) == text


def test_user_defined_tokens_come_first() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata())
    ids = tokenizer.encode("a    b<tag>", parse_special=False)
    assert [TOKENS[i] for i in ids] == ["a", "   ", SPACE, "b", "<tag>"]
    assert tokenizer.decode(ids) == "a    b<tag>"


def test_control_tokens_only_on_request() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata())
    assert tokenizer.encode("a</s>", parse_special=True) == [IDS["a"], IDS["</s>"]]
    plain = tokenizer.encode("a</s>", parse_special=False)
    assert IDS["</s>"] not in plain
    assert tokenizer.decode(plain) == "a</s>"


def test_space_before_text_and_begin_token_are_the_rule() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata(add_space_prefix=None))
    assert tokenizer.add_bos
    ids = tokenizer.encode("ab b", parse_special=False, add_bos=True)
    assert [TOKENS[i] for i in ids] == ["<s>", f"{SPACE}ab", SPACE, "b"]
    assert tokenizer.decode(ids) == "ab b"
    # After a special token too, as SentencePiece's callers do it.
    ids = tokenizer.encode("</s>a", parse_special=True)
    assert [TOKENS[i] for i in ids] == ["</s>", f"{SPACE}a"]


def test_a_file_may_say_otherwise() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata(add_bos_token=False))
    assert not tokenizer.add_bos
    assert tokenizer.encode("ab", parse_special=False) == [IDS["ab"]]


def test_end_tokens() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(metadata())
    assert tokenizer.end_ids == {IDS["</s>"], IDS["<end_of_turn>"]}


def test_merges_are_every_cut_best_score_first() -> None:
    pieces = {"a": 0.0, "b": 0.0, "ab": -1.0, "abb": -2.0, "bb": -3.0, "x": -9.0}
    assert merges_by_score(pieces) == [("a", "b"), ("ab", "b"), ("a", "bb"), ("b", "b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is missing"),
        ({"token_type": [1]}, r"\d+ tokens, \d+ scores and 1 types"),
        ({"unknown_token_id": 9999}, "unknown_token_id is 9999"),
    ],
)
def test_bad_metadata_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_gguf_metadata(metadata(**changes))
