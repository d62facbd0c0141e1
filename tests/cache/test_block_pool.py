"""The block pool's ledger: free + held + kept = all, and who goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.cache.block_pool import BlockPool
from surefoot.cache.budget import KvBudget, window_blocks


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.num_free, pool.num_held, pool.num_kept


def test_a_block_goes_from_free_to_held_to_kept_and_back() -> None:
    pool = BlockPool(3)
    assert counts(pool) == (3, 0, 0)
    assert [pool.take(), pool.take()] == [0, 1]
    pool.hold(1)
    assert (counts(pool), pool.num_holders(1), pool.used) == ((1, 2, 0), 2, {0, 1})
    pool.release(1)
    assert counts(pool) == (1, 2, 0)
    pool.release(1)
    assert (counts(pool), pool.used) == ((1, 1, 1), {0, 1})
    pool.hold(1)
    assert counts(pool) == (1, 2, 0)
    pool.release(1)
    assert pool.evict() == 1
    assert counts(pool) == (2, 1, 0)
    assert pool.evict() is None
    pool.check()


def test_the_longest_kept_goes_first_and_holding_makes_young() -> None:
    pool = BlockPool(4)
    for _ in range(4):
        pool.take()
    for block in (2, 0, 3, 1):
        pool.release(block)
    pool.hold(0)
    pool.release(0)
    assert [pool.evict() for _ in range(5)] == [2, 3, 1, 0, None]


def test_reuse_takes_the_very_block_that_it_evicts() -> None:
    pool = BlockPool(3)
    for _ in range(3):
        pool.take()
    pool.release(2)
    pool.release(1)
    assert (pool.reuse(), pool.num_holders(2), counts(pool)) == (2, 1, (0, 2, 1))
    assert pool.reuse() == 1
    assert pool.reuse() is None


def test_misuse_is_refused_with_its_numbers() -> None:
    pool = BlockPool(1)
    with pytest.raises(AssertionError, match="block 0 has no content"):
        pool.hold(0)
    with pytest.raises(AssertionError, match="block 0 is not held"):
        pool.release(0)
    pool.take()
    with pytest.raises(AssertionError, match="none of 1 blocks is free"):
        pool.take()


OPERATIONS = ["take", "hold", "release", "evict", "reuse"]


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers())))
def test_the_books_always_add_up(operations: list[tuple[str, int]]) -> None:
    pool = BlockPool(4)
    holders: dict[int, int] = {}
    for name, number in operations:
        block = number % 4
        if name == "take" and pool.num_free:
            holders[pool.take()] = 1
        elif name == "hold" and block in pool.used:
            pool.hold(block)
            holders[block] = holders.get(block, 0) + 1
        elif name == "release" and holders.get(block):
            pool.release(block)
            holders[block] -= 1
        elif name == "evict":
            evicted = pool.evict()
            assert evicted is None or not holders.pop(evicted)
        elif name == "reuse":
            reused = pool.reuse()
            assert reused is None or not holders[reused]
            if reused is not None:
                holders[reused] = 1
        pool.check()
        assert {block: pool.num_holders(block) for block in pool.used} == holders
        assert pool.num_free + pool.num_held + pool.num_kept == 4


def test_check_finds_a_block_in_two_places() -> None:
    pool = BlockPool(2)
    pool.take()
    pool._free.append(0)
    with pytest.raises(AssertionError):
        pool.check()


def test_a_budget_adds_windows_and_pool() -> None:
    budget = KvBudget(10)
    assert not budget.reserve(1, 4)
    assert (budget.fits(6), budget.fits(7), budget.fits(7, without=[1])) == (True, False, True)
    assert (budget.excess(6), budget.excess(9)) == (0, 3)
    budget.reserve(2, 6)
    assert (budget.reserved, budget.excess(2)) == ({1: 4, 2: 6}, 2)
    with pytest.raises(AssertionError):
        budget.check(1)
    budget.free(1)
    budget.check(4)
    with pytest.raises(AssertionError):
        budget.reserve(3, 5)


def test_warm_windows_count_until_they_are_cooled() -> None:
    budget = KvBudget(10)
    for window, blocks in ((0, 2), (1, 5), (2, 3)):
        budget.reserve(window, blocks)
    for window in (0, 1, 2):
        budget.keep(window, 4)
    assert (budget.warm, budget.excess(3)) == ({0: 2, 1: 4, 2: 3}, 2)
    assert budget.fits(10)
    assert not budget.reserve(2, 3)
    assert budget.reserve(0, 1)
    assert (budget.reserved, budget.warm) == ({2: 3, 0: 1}, {1: 4})
    assert [budget.cool(), budget.cool()] == [1, None]
    budget.check(6)


def test_pages_that_a_row_found_and_did_not_touch_are_still_there() -> None:
    budget = KvBudget(10)
    budget.reserve(0, 8)
    budget.keep(0, 7)
    assert not budget.reserve(0, 8)
    budget.keep(0, 2)
    assert budget.warm == {0: 7}
    assert budget.reserve(0, 5)
    budget.keep(0, 2)
    assert budget.warm == {0: 5}
    budget.reserve(0, 5)
    budget.free(0)
    assert not budget.reserve(0, 3)
    budget.keep(0, 2)
    assert budget.warm == {0: 2}


def test_no_budget_bounds_nothing() -> None:
    budget = KvBudget()
    budget.reserve(1, 10**9)
    assert budget.fits(10**9)
    assert budget.excess(10**9) == 0


def test_a_window_takes_whole_blocks_and_one_more() -> None:
    assert [window_blocks(tokens) for tokens in (1, 16, 17, 8192)] == [2, 2, 3, 513]
