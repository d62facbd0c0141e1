"""Which dummy tokens the deterministic mode feeds, so that no kernel ever works on one row alone.

Measured operator by operator (ONNX Runtime 1.32, AVX2): the 8-bit-activation matrix product and
attention work in tiles of 128 rows and give bit-equal rows for every number of rows in a tile but
one. A single row takes another kernel, and so does the single row that 129 or 257 tokens leave
over. So neither a row's fed tokens (attention) nor all rows' together (the products) may be 1
modulo 128.
"""

from __future__ import annotations

from collections.abc import Sequence

TILE = 128
MAX_DUMMIES = 2
"""The most dummies a row is ever given: positions that its window needs beyond its capacity."""


def dummy_counts(lengths: Sequence[int]) -> list[int]:
    """How many dummy tokens to feed behind each row's tokens.

    >>> dummy_counts([1]), dummy_counts([1, 1]), dummy_counts([64, 65]), dummy_counts([127, 128])
    ([1], [1, 1], [0, 1], [0, 0])
    """
    dummies = [1 if length % TILE == 1 else 0 for length in lengths]
    if (sum(lengths) + sum(dummies)) % TILE == 1:
        last = lengths[-1] + dummies[-1]
        dummies[-1] += 2 if (last + 1) % TILE == 1 else 1
    return dummies
