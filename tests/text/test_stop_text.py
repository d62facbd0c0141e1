"""Stop strings against a matcher that looks at the whole text after every character."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.naive_stop import naive
from support.tiny_text import tiny_tokenizer
from surefoot.core.request import TextStepper
from surefoot.output.stop_text import RowText, StopMatcher

TINY = tiny_tokenizer()


def run(stops: list[str], chunks: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    sent = [matcher.push(chunk) for chunk in chunks]
    return [*sent, matcher.finish()], matcher.stopped


@pytest.mark.parametrize(
    ("stops", "chunks", "sent", "stopped"),
    [
        ([], ["ab", "", "c"], ["ab", "", "c", ""], False),
        (["abc"], ["xa", "b", "d"], ["x", "", "abd", ""], False),
        (["abc"], ["xa", "b", "cd", "e"], ["x", "", "", "", ""], True),
        (["abc"], ["xa", "b"], ["x", "", "ab"], False),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", "", ""], True),
        (["abcd", "bc"], ["abcd"], ["a", ""], True),
        (["bc", "abc"], ["xabc"], ["x", ""], True),
        (["abab", "bac"], ["aba", "c"], ["", "a", ""], True),
        (["ab", "cd"], ["xcd ab"], ["x", ""], True),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", "", ""], True),
    ],
)
def test_table(stops: list[str], chunks: list[str], sent: list[str], stopped: bool) -> None:
    assert run(stops, chunks) == (sent, stopped)


def chunked(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


@given(
    st.text("ab", max_size=40),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 1000), max_size=10),
)
def test_equals_the_naive_matcher_however_the_text_is_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    sent, stopped = run(stops, chunked(text, cuts))
    assert ("".join(sent), stopped) == naive(text, stops)


@given(st.text(max_size=40), st.text(min_size=1, max_size=3), st.lists(st.integers(0, 1000)))
def test_one_stop_string_ends_the_text_where_find_finds_it(
    text: str, stop: str, cuts: list[int]
) -> None:
    place = (text + stop).find(stop)
    sent, stopped = run([stop], chunked(text + stop, cuts))
    assert ("".join(sent), stopped) == (text[:place], True)


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=6), min_size=1))
def test_what_is_sent_is_never_taken_back(text: str, stops: list[str]) -> None:
    """After each character all but the longest possible beginning of a stop string is sent."""
    matcher = StopMatcher(stops)
    final, _ = naive(text, stops)
    sent = ""
    for end, char in enumerate(text, start=1):
        sent += matcher.push(char)
        if matcher.stopped:
            break
        begun = [
            size for stop in stops for size in range(len(stop)) if text[:end].endswith(stop[:size])
        ]
        assert sent == text[: end - max(begun)]
    assert final.startswith(sent)


def tokens_of(text: str) -> list[int]:
    return TINY.encode(text, parse_special=True)


def test_row_text_joins_characters_and_stop_strings() -> None:
    row: TextStepper = RowText(TINY, ["lo w"])
    sent = [row.push(i) for i in [3 + byte for byte in "é hello world".encode()]]
    assert sent[:8] == ["", "é", " ", "h", "e", "", "l", ""]
    assert "".join(sent) == "é hel"
    assert row.stopped
    assert row.finish() == ""


def test_row_text_without_a_match_keeps_nothing_back() -> None:
    row = RowText(TINY, ["<|im_end|>", "END"])
    ids = tokens_of("THE EN")
    assert "".join(map(row.push, ids)) == "THE "
    assert not row.stopped
    assert row.finish() == "EN"


def test_row_text_leaves_special_tokens_out() -> None:
    row = RowText(TINY)
    assert [row.push(i) for i in (1, *tokens_of("hello"), 2)] == ["", "hello", ""]
    assert row.finish() == ""


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_row_text_equals_the_naive_matcher(text: str, stops: list[str]) -> None:
    row = RowText(TINY, stops)
    sent = ""
    for token_id in TINY.encode(text, parse_special=False):
        sent += row.push(token_id)
        if row.stopped:
            break
    assert (sent + row.finish(), row.stopped) == naive(text, stops)
