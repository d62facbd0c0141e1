"""A row's text when its bytes are cut into tokens anywhere, inside characters too."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.naive_stop import naive
from surefoot.output.stop_text import RowText


class Pieces:
    """A vocabulary of one text's pieces: token i is piece i."""

    special_ids: frozenset[int] = frozenset()
    strips_leading_space = False

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(ends)]


@st.composite
def texts_with_stops(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Most stop strings are parts of the text, so that they are met; characters of one to four
    bytes, so that cuts fall inside them."""
    alphabet = st.sampled_from("aab\né漢🔥👩‍👧")
    text = draw(st.one_of(st.text(alphabet, max_size=30), st.text(max_size=30)))
    stops = draw(st.lists(st.text(alphabet, min_size=1, max_size=4), max_size=2))
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, max(0, len(text) - 1)))
        part = text[start : start + draw(st.integers(1, 5))]
        stops += [part] if part else []
    return text, stops


@given(texts_with_stops(), st.lists(st.integers(0, 200), max_size=25))
def test_the_text_ends_where_the_whole_text_says(
    case: tuple[str, list[str]], places: list[int]
) -> None:
    text, stops = case
    pieces = Pieces(cut(text.encode(), places))
    row = RowText(pieces, stops)
    wanted, stopped = naive(text, stops)
    sent = ""
    for token_id in range(len(pieces.pieces)):
        sent += row.push(token_id)
        assert wanted.startswith(sent), "what was sent can be taken back by nobody"
        if row.stopped:
            break
    assert (sent + row.finish(), row.stopped) == (wanted, stopped)


@given(st.binary(max_size=40), st.lists(st.integers(0, 200), max_size=25))
def test_any_bytes_give_the_same_text_however_they_are_cut(data: bytes, places: list[int]) -> None:
    whole, parts = RowText(Pieces([data])), Pieces(cut(data, places))
    row = RowText(parts)
    sent = "".join(row.push(token_id) for token_id in range(len(parts.pieces))) + row.finish()
    assert sent == whole.push(0) + whole.finish()
