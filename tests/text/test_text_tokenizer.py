"""The tokenizer against the reference, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import ModelError
from surefoot.text.byte_alphabet import BYTE_OF_CHAR, byte_level_bytes, sentencepiece_bytes
from surefoot.text.pre_tokenizers import PRE_TOKENIZATIONS
from surefoot.text.tokenizer import Tokenizer
from tiny_text import tiny_metadata, tiny_tokenizer

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
        ({"model": "llama"}, "tokenizer model 'llama'"),
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
