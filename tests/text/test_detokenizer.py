"""Whole characters only, and the same text as decoding everything at once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.tiny_text import tiny_tokenizer
from surefoot.output.detokenizer import Detokenizer
from surefoot.text.tokenizer import Tokenizer

TINY = tiny_tokenizer()


def pushes(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(i) for i in ids] + [detokenizer.flush()]


def ids_of(data: bytes) -> list[int]:
    return [3 + byte for byte in data]


def test_every_prefix_of_every_reference_item(
    default_tokenizer: Tokenizer, golden_tokens: dict[str, Any]
) -> None:
    for item in golden_tokens["items"]:
        ids = item["ids"]
        whole = item.get("decoded_skip_special", item["decoded"])
        assert "".join(pushes(default_tokenizer, ids)) == whole, item["name"]
        for cut in range(len(ids)):
            part = "".join(pushes(default_tokenizer, ids[:cut]))
            assert whole.startswith(part), (item["name"], cut)
            if item["lossless"]:
                assert "\ufffd" not in part or "\ufffd" in item["text"]


def test_a_character_comes_with_its_last_byte() -> None:
    assert pushes(TINY, ids_of("é🔥".encode())) == ["", "é", "", "", "", "🔥", ""]


def test_a_character_cut_by_the_end_is_dropped() -> None:
    assert pushes(TINY, ids_of(b"a\xf0\x9f\x94")) == ["a", "", "", "", ""]


def test_bytes_of_no_character_are_replaced_when_known_to_be() -> None:
    assert pushes(TINY, ids_of(b"\x80\xf0\x9fz")) == ["\ufffd", "", "", "\ufffdz", ""]


def test_special_tokens_give_no_text_and_do_not_split_a_character() -> None:
    high, low = ids_of("é".encode())
    assert pushes(TINY, [1, high, 2, low, 0]) == ["", "", "", "é", "", ""]


@given(st.lists(st.integers(0, TINY.vocab_size)))
def test_pushes_join_to_the_decoded_text(ids: list[int]) -> None:
    assert "".join(pushes(TINY, ids)) == TINY.decode(ids)


@given(st.lists(st.integers(3, 258)))
def test_any_bytes_decode_as_python_does_but_for_a_cut_character(ids: list[int]) -> None:
    data = bytes(i - 3 for i in ids)
    expected = data.decode("utf-8", "replace")
    assert TINY.decode(ids) in (expected, expected.removesuffix("\ufffd"))


@given(st.text())
def test_each_push_of_a_text_is_a_run_of_its_characters(text: str) -> None:
    parts = pushes(TINY, ids_of(text.encode()))
    assert "".join(parts) == text
    assert all(len(part) <= 1 for part in parts)
