"""Which dummy tokens the deterministic mode feeds, so that no kernel ever works on one row alone.

The kernels work in tiles of rows and give bit-equal rows for every number of rows in a tile but
one: a single row takes another kernel, and so does the single row that a tile leaves over
(measured operator by operator, ONNX Runtime 1.32, AVX2). So no tile may hold one row: neither a
row's fed tokens in attention's tiles, nor all rows' together, nor the asked positions in the
matrix products'.
"""

from __future__ import annotations

from collections.abc import Sequence

PRODUCT_TILE = 128
"""Rows of one tile of the matrix products (with one thread there are no tiles)."""

_L2_KIB = (256, 512, 1024, 1280, 2048, 3072)
"""Second-level caches that processors have. Attention's tile depends on it, and no interface of
Python or ONNX Runtime tells its size everywhere."""


def attention_tiles(head_dim: int) -> tuple[int, ...]:
    """Tile lengths that ONNX Runtime's flash attention may use on one machine or another: the
    smaller of `2 * head_dim` and `L2 bytes / (32 * head_dim)`.

    >>> attention_tiles(16), attention_tiles(64), attention_tiles(128)
    ((32,), (128,), (64, 128, 256))
    """
    whole = 2 * head_dim
    return tuple(sorted({min(whole, kib * 1024 // (32 * head_dim)) for kib in _L2_KIB}))


def max_dummies(tiles: Sequence[int]) -> int:
    """The most dummies a row is ever given: positions its window needs beyond its capacity. Each
    tile rules out one of any few neighbouring counts, and so does the products' tile."""
    return len(tiles) + 1


def dummy_counts(lengths: Sequence[int], tiles: Sequence[int]) -> list[int]:
    """How many dummy tokens to feed behind each row's tokens.

    >>> dummy_counts([1], [128]), dummy_counts([1, 1], [128]), dummy_counts([64, 65], [128])
    ([1], [1, 1], [0, 1])
    """
    padded = [_padded(length, tiles) for length in lengths]
    while sum(padded) % PRODUCT_TILE == 1:
        padded[-1] = _padded(padded[-1] + 1, tiles)
    return [fed - length for fed, length in zip(padded, lengths, strict=True)]


def _padded(length: int, tiles: Sequence[int]) -> int:
    while any(length % tile == 1 for tile in tiles):
        length += 1
    return length


def pad_asked(asked: list[int]) -> list[int]:
    """The asked positions, the last one twice where they would leave one row for the head."""
    return [*asked, asked[-1]] if len(asked) % PRODUCT_TILE == 1 else asked
