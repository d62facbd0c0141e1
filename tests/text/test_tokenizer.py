"""The tokenizer against the reference, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.tiny_text import tiny_metadata, tiny_tokenizer
from surefoot.errors import ModelError
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary.byte_alphabet import (
    BYTE_OF_CHAR,
    byte_level_bytes,
    sentencepiece_bytes,
)
from surefoot.text.vocabulary.pre_tokenizers import PRE_TOKENIZATIONS

TINY = tiny_tokenizer()
NUM_TINY = 3 + 256 + 8 + 1


def byte_ids(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


def test_ids_match_the_reference(
    default_tokenizer: Tokenizer, golden_tokens: dict[str, Any]
) -> None:
    for item in golden_tokens["items"]:
        assert default_tokenizer.encode(item["text"], parse_special=True) == item["ids"], item
        assert default_tokenizer.encode(item["text"], parse_special=False) == item["ids_plain"]


def test_decoded_text_matches_the_reference(
    default_tokenizer: Tokenizer, golden_tokens: dict[str, Any]
) -> None:
    for item in golden_tokens["items"]:
        kept = default_tokenizer.decode(item["ids"], skip_special=False)
        assert kept == item["decoded"], item["name"]
        assert default_tokenizer.decode(item["ids_plain"]) == item["decoded"]
        skipped = item.get("decoded_skip_special", item["decoded"])
        assert default_tokenizer.decode(item["ids"]) == skipped
        assert (kept == item["text"]) == item["lossless"]


def test_token_bytes_join_to_the_reference_bytes(
    default_tokenizer: Tokenizer, golden_tokens: dict[str, Any]
) -> None:
    for item in golden_tokens["items"]:
        joined = b"".join(default_tokenizer.token_bytes(i) for i in item["ids"])
        expected = item.get("decoded_hex", item["decoded"].encode().hex())
        assert joined.hex() == expected, item["name"]


def test_head_of_the_reference(default_tokenizer: Tokenizer, golden_tokens: dict[str, Any]) -> None:
    assert default_tokenizer.vocab_size == golden_tokens["vocab_size"] == 49152
    assert default_tokenizer.bos_id == golden_tokens["bos_id"]
    assert default_tokenizer.eos_id == golden_tokens["eos_id"]
    assert default_tokenizer.add_bos is golden_tokens["add_bos"]
    assert default_tokenizer.special_ids == set(golden_tokens["special_tokens"].values())
    for text, token_id in golden_tokens["special_tokens"].items():
        assert default_tokenizer.token_text(token_id) == text
        assert default_tokenizer.token_bytes(token_id) == text.encode()


def test_default_model_ends_on_both_of_its_end_tokens(default_tokenizer: Tokenizer) -> None:
    assert default_tokenizer.end_ids == {0, 2}


def test_tiny_ids_by_hand() -> None:
    hello, angle_bar = 3 + 256 + 3, 3 + 256 + 5
    assert TINY.encode("hello", parse_special=True) == [hello]
    assert TINY.encode("a<|im_end|>b", parse_special=True) == [3 + ord("a"), 2, 3 + ord("b")]
    assert TINY.encode("<|im_end|>", parse_special=False)[0] == angle_bar
    assert TINY.encode("", parse_special=True) == []
    assert TINY.encode("hello", parse_special=True, add_bos=True) == [1, hello]


def test_user_defined_tokens_are_found_in_plain_text_and_are_not_special() -> None:
    think = NUM_TINY - 1
    assert TINY.encode("a<think>", parse_special=False) == [3 + ord("a"), think]
    assert TINY.decode([think]) == "<think>"


def test_pieces_merge_inside_but_not_across_a_special_token() -> None:
    hello = 3 + 256 + 3
    assert TINY.encode_pieces(["he", "llo"]) == [hello]
    assert TINY.encode_pieces(["he", 2, "llo", 0]) == [
        3 + 256,
        2,
        3 + 256 + 1,
        3 + ord("o"),
        0,
    ]


def test_lone_surrogates_become_replacement_characters() -> None:
    assert TINY.decode(TINY.encode("a\ud800b", parse_special=True)) == "a\ufffdb"


def test_ids_beyond_the_vocabulary_have_no_text() -> None:
    assert TINY.vocab_size == NUM_TINY
    assert [TINY.token_bytes(i) for i in (-1, NUM_TINY, NUM_TINY + 5)] == [b"", b"", b""]


@given(st.text())
def test_every_text_survives_a_vocabulary_with_all_bytes(text: str) -> None:
    ids = TINY.encode(text, parse_special=False)
    assert TINY.decode(ids) == text
    assert TINY.special_ids.isdisjoint(ids)


@given(st.lists(st.one_of(st.sampled_from(("<|im_end|>", "<|im_start|>", "<|")), st.text())))
def test_parsed_special_tokens_are_those_of_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    ids = TINY.encode(text, parse_special=True)
    assert TINY.decode(ids, skip_special=False) == text
    assert ids.count(2) == text.count("<|im_end|>")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZATIONS))
def test_every_listed_pre_tokenizer_builds_and_loses_nothing(pre: str) -> None:
    text = "I'll pay $12345.67 for  3 naïve cafés!\r\n\n\tOK?  "
    tokenizer = tiny_tokenizer(pre=pre)
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", [" 12345", "'s", "  ", " x"]),
        ("smollm", [" ", "1", "2", "3", "4", "5", "'s", "  ", " x"]),
        ("llama-bpe", [" ", "123", "45", "'s", "  ", " x"]),
        ("qwen2", [" ", "1", "2", "3", "4", "5", "'s", "  ", " x"]),
        ("tekken", [" ", "1", "2", "3", "4", "5", "'s", "  ", " x"]),
    ],
)
def test_pieces_of_pre_tokenizers(pre: str, pieces: list[str]) -> None:
    rule = PRE_TOKENIZATIONS[pre].pre_tokenizer()
    cut = [
        bytes(BYTE_OF_CHAR[c] for c in piece) for piece, _ in rule.pre_tokenize_str(" 12345's   x")
    ]
    assert cut == [piece.encode() for piece in pieces]


def test_unknown_pre_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"'nonsense'.*supported: .*smollm"):
        tiny_tokenizer(pre="nonsense")


def test_missing_pre_tokenizer_is_refused_unless_given_by_hand() -> None:
    metadata = tiny_metadata(pre=None)
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre is missing.*smollm"):
        Tokenizer.from_gguf_metadata(metadata)
    by_hand = Tokenizer.from_gguf_metadata(metadata, pre="smollm")
    assert by_hand.encode("hello", parse_special=True) == TINY.encode("hello", parse_special=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "t5"}, "tokenizer model 't5'"),
        ({"model": None}, "tokenizer model None"),
        ({"tokens": None}, "tokens is missing"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["h zz"]}, "merges cannot be used"),
        ({"merges": ["hello"]}, "merges cannot be used"),
        ({"token_type": [1]}, "token_type has 1 entries for 268 tokens"),
        ({"eos_token_id": 268}, "eos_token_id is 268; the vocabulary has 268 tokens"),
        ({"bos_token_id": -1}, "bos_token_id is -1"),
        ({"eos_token_id": "2"}, "eos_token_id is a str, not a int"),
    ],
)
def test_bad_metadata_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as refused:
        tiny_tokenizer(**changes)
    assert message in str(refused.value)


def test_end_ids_are_eos_eot_eom_and_well_known_control_tokens() -> None:
    plain = 3 + ord("a")
    assert tiny_tokenizer(eos_token_id=0).end_ids == {0, 2}
    assert tiny_tokenizer(eot_token_id=plain, eom_token_id=plain + 1).end_ids == {
        0,
        2,
        plain,
        plain + 1,
    }


def test_add_bos_is_the_files_word_else_the_pre_tokenizers() -> None:
    assert not TINY.add_bos
    assert tiny_tokenizer(add_bos_token=True).add_bos
    assert tiny_tokenizer(pre="llama-bpe").add_bos
    assert not tiny_tokenizer(pre="llama-bpe", add_bos_token=False).add_bos
    assert not tiny_tokenizer(add_bos_token=True, bos_token_id=None).add_bos


def test_a_whole_piece_never_becomes_a_control_token() -> None:
    """Under llama-bpe a piece that is in the vocabulary is taken whole; `end` is one piece."""
    tokens = list(tiny_metadata()["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    tokens[0] = "end"
    tokenizer = tiny_tokenizer(pre="llama-bpe", tokens=tokens)
    assert tokenizer.encode("end", parse_special=True) == [0]
    assert tokenizer.encode("end", parse_special=False) == byte_ids("end")


def test_sentencepiece_spelling() -> None:
    assert sentencepiece_bytes("<0xE2>") == b"\xe2"
    assert sentencepiece_bytes("\u2581hi") == b" hi"
    assert byte_level_bytes("Ġé") == b" \xe9"
    assert byte_level_bytes("two words") == b"two words"
