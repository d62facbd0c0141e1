"""The windows' ledger: who holds what, and its self-check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.cache.windows import WindowLedger


def test_the_lowest_free_window_is_taken() -> None:
    ledger = WindowLedger(3)
    assert [ledger.take(row) for row in (7, 8, 9)] == [0, 1, 2]
    assert (ledger.num_free, ledger.held) == (0, {0: 7, 1: 8, 2: 9})
    ledger.free(2, 9)
    ledger.free(0, 7)
    assert (ledger.take(10), ledger.take(11)) == (0, 2)
    ledger.check()


def test_no_window_is_taken_twice() -> None:
    ledger = WindowLedger(1)
    ledger.take(1)
    with pytest.raises(AssertionError, match="all 1 windows are held"):
        ledger.take(2)


@pytest.mark.parametrize(("window", "row"), [(0, 2), (1, 1), (5, 1)])
def test_only_its_holder_frees_a_window(window: int, row: int) -> None:
    ledger = WindowLedger(2)
    ledger.take(1)
    with pytest.raises(AssertionError, match=f"row {row} frees window {window}"):
        ledger.free(window, row)


def test_check_finds_a_row_with_two_windows() -> None:
    ledger = WindowLedger(2)
    ledger.take(1)
    ledger.take(1)
    with pytest.raises(AssertionError):
        ledger.check()


@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40))
def test_free_and_held_always_add_up(num_windows: int, steps: list[tuple[bool, int]]) -> None:
    ledger = WindowLedger(num_windows)
    next_row = 0
    for take, pick in steps:
        held = sorted(ledger.held.items())
        if take and ledger.num_free:
            ledger.take(next_row)
            next_row += 1
        elif held:
            window, row = held[pick % len(held)]
            ledger.free(window, row)
        ledger.check()
        assert ledger.num_free + len(ledger.held) == num_windows


def test_the_cheapest_free_window_is_taken_and_of_equals_the_lowest() -> None:
    ledger = WindowLedger(4)
    prices = [3, 1, 1, 0]
    assert [ledger.take(row, prices.__getitem__) for row in range(4)] == [3, 1, 2, 0]
