"""Where blocks lie, as integers."""

from __future__ import annotations

import pytest

from surefoot.cache.block_places import BlockPlaces


def three_in_two() -> BlockPlaces:
    """Blocks 7 and 5 in window 0, one behind the other; 7 and 2 in window 1."""
    places = BlockPlaces()
    for block, window, position in ((5, 0, 16), (7, 0, 0), (7, 1, 0), (2, 1, 16)):
        places.put(block, window, position)
    return places


def test_a_block_is_where_it_was_put() -> None:
    places = three_in_two()
    assert [block for block in (2, 5, 7) if places.is_in(block, 0)] == [5, 7]
    assert [block for block in (2, 5, 7) if places.is_in(block, 1)] == [2, 7]
    assert [places.window_of(block) for block in (2, 5, 7)] == [1, 0, 0]
    with pytest.raises(AssertionError):
        places.put(7, 1, 0)
    with pytest.raises(AssertionError):
        places.window_of(9)


@pytest.mark.parametrize(
    ("first", "staying", "saved", "stay"),
    [
        (0, (), [(16, 5)], []),
        (16, (), [(16, 5)], [7]),
        (17, (), [], [5, 7]),
        (0, (5,), [], [5]),
        (0, (7,), [(16, 5)], [7]),
    ],
)
def test_only_the_last_copy_of_a_block_is_saved(
    first: int, staying: tuple[int, ...], saved: list[tuple[int, int]], stay: list[int]
) -> None:
    places = three_in_two()
    assert places.last_copies(0, first, staying) == saved
    assert places.leave(0, first, staying) == saved
    assert [block for block in (2, 5, 7) if places.is_in(block, 0)] == stay
    assert places.leave(0, first, staying) == []
    places.check({2, 5, 7})


def test_a_saved_block_is_had_from_its_memory_and_never_saved_again() -> None:
    places = three_in_two()
    assert places.leave(1) == [(16, 2)]
    assert places.leave(0) == [(0, 7), (16, 5)]
    assert [places.window_of(block) for block in (2, 5, 7)] == [None] * 3
    places.put(7, 3, 0)
    assert (places.is_in(7, 3), places.window_of(7), places.leave(3)) == (True, None, [])


def test_what_is_saved_ahead_stays_and_is_not_saved_again() -> None:
    places = three_in_two()
    assert [places.num_unsaved(window) for window in (0, 1, 2)] == [2, 2, 0]
    assert places.save(0, 1) == [(16, 5)]
    assert [places.num_unsaved(window) for window in (0, 1)] == [1, 2]
    assert places.save(0, 2) == [(0, 7)]
    assert [places.num_unsaved(window) for window in (0, 1)] == [0, 1]
    places.check({2, 5, 7})
    assert (places.save(0, 2), places.leave(0)) == ([], [])
    assert places.window_of(7) is None


def test_a_dropped_block_is_nowhere_and_may_come_again() -> None:
    places = three_in_two()
    assert not places.drop(2)
    places.put(2, 1, 16)
    places.leave(0)
    assert places.drop(5)
    places.put(5, 0, 16)
    assert not places.drop(7)
    places.check({2, 5})
    assert not places.is_in(7, 1)
    places.put(7, 1, 0)
    assert places.window_of(7) == 1
    assert places.leave(1) == [(0, 7), (16, 2)]


def test_the_check_knows_blocks_without_content_and_broken_books() -> None:
    places = three_in_two()
    places.check({2, 5, 7})
    for used in ({2, 5}, {2, 5, 7, 9}):
        with pytest.raises(AssertionError):
            places.check(used)
    places._windows[2].clear()
    with pytest.raises(AssertionError):
        places.check({2, 5, 7})
