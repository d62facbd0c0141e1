"""Dummy tokens of the deterministic mode: no kernel's tile ever holds a single row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.engine.padding import (
    PRODUCT_TILE,
    attention_tiles,
    dummy_counts,
    max_dummies,
    pad_asked,
)
from surefoot.graph.weights import DUMMY_POSITIONS

HEAD_DIMS = (16, 32, 64, 80, 96, 128, 160, 192, 256)


@pytest.mark.parametrize(
    ("head_dim", "tiles"),
    [
        (16, (32,)),
        (32, (64,)),
        (64, (128,)),
        (80, (102, 160)),
        (96, (85, 170, 192)),
        (128, (64, 128, 256)),
        (256, (32, 64, 128, 160, 256, 384)),
    ],
)
def test_tiles_of_attention(head_dim: int, tiles: tuple[int, ...]) -> None:
    assert attention_tiles(head_dim) == tiles


@pytest.mark.parametrize(
    ("lengths", "dummies"),
    [
        ([1], [1]),
        ([2], [0]),
        ([32], [0]),
        ([33], [1]),
        ([127], [0]),
        ([128], [0]),
        ([129], [1]),
        ([257], [1]),
        ([1, 1], [1, 1]),
        ([1, 8, 1], [1, 0, 1]),
        ([64, 65], [0, 1]),
        ([100, 29], [0, 1]),
        ([96, 32, 1], [0, 0, 1]),
        ([97, 31], [1, 1]),
        ([2] * 64 + [1], [0] * 64 + [1]),
    ],
)
def test_counts(lengths: list[int], dummies: list[int]) -> None:
    assert dummy_counts(lengths, attention_tiles(16)) == dummies


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=8),
    st.sampled_from(HEAD_DIMS),
)
def test_no_tile_is_left_with_one_row(lengths: list[int], head_dim: int) -> None:
    tiles = attention_tiles(head_dim)
    dummies = dummy_counts(lengths, tiles)
    fed = [length + count for length, count in zip(lengths, dummies, strict=True)]
    assert min(dummies) >= 0
    assert all(length % tile != 1 for length in fed for tile in tiles)
    assert sum(fed) % PRODUCT_TILE != 1
    assert max(dummies) <= max_dummies(tiles)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_the_rotations_reach_as_far_as_the_dummies(head_dim: int) -> None:
    assert max_dummies(attention_tiles(head_dim)) <= DUMMY_POSITIONS


@pytest.mark.parametrize(
    ("count", "padded"), [(1, 2), (2, 2), (127, 127), (128, 128), (129, 130), (257, 258)]
)
def test_asked_positions(count: int, padded: int) -> None:
    asked = list(range(5, 5 + count))
    found = pad_asked(asked)
    assert len(found) == padded
    assert found[:count] == asked
    assert set(found[count:]) <= {asked[-1]}
