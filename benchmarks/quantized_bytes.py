"""Random tensor bytes of every GGUF type, also of those that the `gguf` package only reads."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from numpy.typing import NDArray

HALF_FLOATS = {
    Type.Q4_0: (0,),
    Type.Q4_1: (0, 2),
    Type.Q5_0: (0,),
    Type.Q5_1: (0, 2),
    Type.Q8_0: (0,),
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.IQ4_NL: (0,),
    Type.IQ4_XS: (0,),
}
"""Where a block's half floats lie; every other byte may be anything."""


def random_bytes(
    kind: Type, shape: tuple[int, int], seed: int = 0, gain: float = 0.02
) -> NDArray[np.uint8]:
    """`[out, in]` elements as `[out, bytes of a row]`; scales are around `gain`, of both signs."""
    rng = np.random.default_rng(seed)
    elements, size = GGML_QUANT_SIZES[kind]
    rows, inputs = shape
    blocks = rng.integers(0, 256, (rows, inputs // elements, size)).astype(np.uint8)
    for offset in HALF_FLOATS[kind]:
        halves = (gain * rng.standard_normal((rows, inputs // elements, 1))).astype("<f2")
        blocks[..., offset : offset + 2] = halves.view(np.uint8)
    return blocks.reshape(rows, -1)
