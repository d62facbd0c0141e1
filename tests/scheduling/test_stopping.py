"""Where a step's tokens stop belonging to the reply: a table."""

from __future__ import annotations

import pytest

from support.scheduler_runs import request
from surefoot.core.events import FinishReason
from surefoot.scheduling.stopping import Kept, keep_until_stop

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


@pytest.mark.parametrize(
    ("tokens", "room", "kept"),
    [
        ((0,), 9, Kept(1, "a")),
        ((0, 1, 2), 9, Kept(3, "abc")),
        ((0, 1, 2), 3, Kept(3, "abc", LENGTH)),
        ((25,), 9, Kept(1, "", STOP)),  # the end token: counted, no text
        ((0, 25, 1), 9, Kept(2, "a", STOP)),
        ((0, 25), 2, Kept(2, "a", STOP)),  # a stop beats the limit
        ((0, 23), 9, Kept(2, "a")),  # x may begin the stop string
        ((0, 23), 2, Kept(2, "a", LENGTH, "x")),
        ((23, 25), 9, Kept(2, "", STOP, "x")),
        ((23, 24, 0), 9, Kept(2, "", STOP)),
        ((0, 23, 24), 3, Kept(3, "a", STOP)),
        ((23, 0), 9, Kept(2, "xa")),
    ],
)
def test_table(tokens: tuple[int, ...], room: int, kept: Kept) -> None:
    """Token t is the letter a + t; 25 ends the row, "xy" is its stop string."""
    assert keep_until_stop(request(1, (1,), 9, end_ids={25}, stop="xy"), tokens, room) == kept


def test_more_tokens_than_room_are_a_bug_of_ours() -> None:
    with pytest.raises(AssertionError):
        keep_until_stop(request(1, (1,)), (1, 2), 1)
