"""The prefix index: found only after the same beginning, whatever the hash does."""

from __future__ import annotations

import pytest

from surefoot.cache.prefix_index import PrefixIndex, Tip, blake2b_key


def constant_key(parent: bytes, content: bytes) -> bytes:
    return b"same"


def add(index: PrefixIndex, tip: Tip, ids: tuple[int, ...], block: int) -> Tip:
    place = index.place(tip, ids)
    index.add(place, block)
    return place.tip_at(block)


def test_a_block_is_found_by_its_whole_beginning() -> None:
    index = PrefixIndex("model")
    root = index.root("")
    first = add(index, root, (1, 2), 5)
    second = add(index, first, (3, 4), 6)
    assert index.place(root, [1, 2]).block == 5
    assert index.place(first, [3, 4]).block == 6
    assert index.place(root, [3, 4]).block is None
    assert index.place(second, [3, 4]).block is None
    assert index.place(root, [2, 1]).block is None
    assert len(index) == 2
    index.check({5, 6})


def test_salts_and_models_never_meet() -> None:
    index = PrefixIndex("model")
    add(index, index.root("a"), (1, 2), 0)
    for salt in ("", "b", "aa"):
        assert index.place(index.root(salt), (1, 2)).block is None
    assert PrefixIndex("other").root("a").key != index.root("a").key


def test_with_a_broken_hash_other_content_is_a_miss() -> None:
    index = PrefixIndex("model", constant_key)
    root = index.root("")
    first = add(index, root, (1, 2), 0)
    assert index.place(root, (1, 2)).block == 0
    for tip, ids in ((root, (2, 1)), (first, (1, 2)), (index.root("tenant"), (1, 2))):
        place = index.place(tip, ids)
        assert (place.block, place.taken) == (None, True)
        with pytest.raises(AssertionError):
            index.add(place, 1)


def test_chains_go_from_their_ends() -> None:
    index = PrefixIndex("model")
    first = add(index, index.root(""), (1,), 0)
    add(index, first, (2,), 1)
    add(index, first, (3,), 2)
    with pytest.raises(AssertionError, match="block 0 leaves before what follows it"):
        index.remove(0)
    index.remove(2)
    index.remove(1)
    index.check({0})
    index.remove(0)
    assert len(index) == 0
    with pytest.raises(AssertionError, match="block 0 left before 3 came"):
        add(index, first, (2,), 3)


def test_a_shut_block_and_what_follows_it_are_never_found_again() -> None:
    index = PrefixIndex("model")
    root = index.root("")
    first = add(index, root, (1, 2), 0)
    add(index, first, (3, 4), 1)
    index.shut(0)
    index.shut(0)
    index.check({0, 1})
    assert index.place(root, (1, 2)).block is None
    again = add(index, root, (1, 2), 2)
    place = index.place(again, (3, 4))
    assert (place.block, place.taken) == (None, True)
    for block in (1, 0, 2):
        index.remove(block)
    index.check(set())
    assert len(index) == 0


def test_check_finds_a_block_that_the_pool_does_not_know() -> None:
    index = PrefixIndex("model")
    add(index, index.root(""), (1,), 0)
    with pytest.raises(AssertionError):
        index.check(set())


def test_the_key_depends_on_both_parts() -> None:
    assert len(blake2b_key(b"", b"x")) == 16
    keys = {blake2b_key(parent, content) for parent in (b"a", b"b") for content in (b"x", b"y")}
    assert len(keys) == 4
