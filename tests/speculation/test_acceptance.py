"""Acceptance by comparison, cuts at end tokens, and the room for a proposal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.acceptance import (
    accepted_prefix,
    cut_after_end,
    emitted_tokens,
    proposal_room,
)


@pytest.mark.parametrize(
    ("draft", "samples", "accepted", "emitted"),
    [
        ([], [4], 0, (4,)),
        ([5], [4, 9], 0, (4,)),
        ([5], [5, 9], 1, (5, 9)),
        ([5, 6, 7], [5, 6, 9, 4], 2, (5, 6, 9)),
        ([5, 6, 7], [5, 6, 7, 4], 3, (5, 6, 7, 4)),
        # A later agreement does not count.
        ([5, 6, 7], [1, 6, 7, 4], 0, (1,)),
    ],
)
def test_longest_agreeing_prefix_and_one_more(
    draft: list[int], samples: list[int], accepted: int, emitted: tuple[int, ...]
) -> None:
    assert accepted_prefix(draft, samples) == accepted
    assert emitted_tokens(draft, samples) == emitted


@pytest.mark.parametrize(
    ("draft", "samples", "emitted"),
    [
        # The end token is emitted, nothing after it is: inside the block, ...
        ([5, 2, 7], [5, 2, 7, 4], (5, 2)),
        # ... as its last draft, without a bonus, ...
        ([5, 2], [5, 2, 4], (5, 2)),
        # ... as the bonus, or as the correction.
        ([5, 6], [5, 6, 2], (5, 6, 2)),
        ([5, 6], [5, 2, 9], (5, 2)),
        ([], [2], (2,)),
    ],
)
def test_an_end_token_ends_the_round(
    draft: list[int], samples: list[int], emitted: tuple[int, ...]
) -> None:
    assert emitted_tokens(draft, samples, frozenset({2, 3})) == emitted


def test_cut_after_end() -> None:
    assert cut_after_end([1, 2, 3], set()) == (1, 2, 3)
    assert cut_after_end([1, 2, 3], {2}) == (1, 2)
    assert cut_after_end([2, 2], {2}) == (2,)
    assert cut_after_end([], {2}) == ()


TOKENS = st.integers(0, 3)


@given(
    draft=st.lists(TOKENS, max_size=8),
    target=st.lists(TOKENS, min_size=9, max_size=9),
    end_ids=st.frozensets(TOKENS, max_size=2),
)
def test_a_round_emits_what_plain_decoding_would(
    draft: list[int], target: list[int], end_ids: frozenset[int]
) -> None:
    """With a target whose tokens do not depend on the draft, a round emits its next tokens."""
    emitted = emitted_tokens(draft, target[: len(draft) + 1], end_ids)
    assert 1 <= len(emitted) <= len(draft) + 1
    assert emitted == tuple(target[: len(emitted)])
    assert not any(token in end_ids for token in emitted[:-1])
    kept = min(accepted_prefix(draft, target), len(emitted))
    assert emitted[:kept] == tuple(draft[:kept])


@pytest.mark.parametrize(
    ("tokens_left", "start", "capacity", "in_flight", "room"),
    [
        (10, 100, None, False, 9),
        (2, 100, None, False, 1),
        (1, 100, None, False, 0),
        # The unread token of a step in flight takes one place.
        (10, 100, None, True, 8),
        (2, 100, None, True, 0),
        (1, 100, None, True, 0),
        # start + k + 1 <= capacity.
        (10, 100, 104, False, 3),
        (10, 100, 102, False, 1),
        (10, 100, 101, False, 0),
        (10, 100, 104, True, 2),
        (10, 100, 102, True, 0),
        (3, 100, 110, False, 2),
    ],
)
def test_proposal_room(
    tokens_left: int, start: int, capacity: int | None, in_flight: bool, room: int
) -> None:
    assert (
        proposal_room(tokens_left=tokens_left, start=start, capacity=capacity, in_flight=in_flight)
        == room
    )
