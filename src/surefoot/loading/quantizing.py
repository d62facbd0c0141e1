"""Float matrices to 8 or 4 bits at load, for models that come unquantized.

Symmetric, one scale for 32 inputs, as GGUF's Q8_0 and Q4_0 do it, with float32 scales. What is
quantized already passes unchanged. Knows no file format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.graph.spec import BLOCK, DenseWeight, QuantizedWeight, Weight
from surefoot.loading.fidelity import TracedWeights
from surefoot.loading.gguf.blocks import pack_nibbles

Quantize = Literal["q8", "q4", "none"]
QUANTIZE: tuple[Quantize, ...] = ("q8", "q4", "none")

ENDS = ("token_embd.weight", "output.weight")
"""Kept at 8 bits whatever is asked for: an output matrix of 4 bits costs 0.06 nats (measured on
the default model)."""

Progress = Callable[[int, int], None]
"""Told of matrices done and matrices in all."""

Floats = NDArray[np.float32]


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


class QuantizingWeights:
    """Another source's tensors, float matrices quantized as they are loaded."""

    def __init__(
        self,
        source: TracedWeights,
        matrices: Iterable[str],
        quantize: Quantize,
        progress: Progress = no_progress,
    ) -> None:
        self._source = source
        self._waiting = set(matrices)
        self._total = len(self._waiting)
        self._bits = {"q8": 8, "q4": 4}.get(quantize)
        self._progress = progress

    def names(self) -> Iterable[str]:
        return self._source.names()

    def type_of(self, name: str) -> str:
        return self._source.type_of(name)

    def values(self, name: str) -> Floats:
        return self._source.values(name)

    def load(self, name: str) -> Weight:
        weight = self._source.load(name)
        if self._bits is None or not is_quantizable(weight):
            return weight
        assert isinstance(weight, DenseWeight)
        quantized = quantize_matrix(weight.values, 8 if name in ENDS else self._bits)
        if name in self._waiting:
            self._waiting.discard(name)
            self._progress(self._total - len(self._waiting), self._total)
        return quantized


def is_quantizable(weight: Weight) -> bool:
    """A float matrix whose rows are whole blocks."""
    if not isinstance(weight, DenseWeight) or weight.values.ndim != 2:
        return False
    return int(weight.values.shape[1]) % BLOCK == 0


def quantize_matrix(values: Floats, bits: int) -> QuantizedWeight:
    """The nearest multiples of each block's scale; `values` float32 `[out, in]`."""
    outputs, inputs = values.shape
    blocks = values.reshape(outputs, inputs // BLOCK, BLOCK)
    if bits == 8:
        scales = np.abs(blocks).max(axis=-1) / np.float32(127)
        levels = _nearest(blocks, scales, -127, 127)
        return QuantizedWeight(8, (levels + 128).astype(np.uint8), scales)
    # The value furthest from zero becomes -8: the sixteen levels reach one further down than up.
    furthest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[..., None], axis=-1)
    scales = furthest[..., 0] / np.float32(-8)
    levels = _nearest(blocks, scales, -8, 7)
    return QuantizedWeight(4, pack_nibbles((levels + 8).astype(np.uint8)), scales)


def _nearest(blocks: Floats, scales: Floats, low: int, high: int) -> NDArray[np.int16]:
    safe = np.where(scales == 0, np.float32(1), scales)
    return np.clip(np.rint(blocks / safe[..., None]), low, high).astype(np.int16)
