"""What the graph must know of a linear layer besides its numbers. Reads no ONNX."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.graph.spec import BLOCK, DenseWeight, Weight

BUILDER_VERSION = 4
"""Part of the cached graph's key: raise it when the same file must give another graph."""


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """`[outputs, inputs]`, quantized in runs of `block` inputs; `bits` None: float32."""

    inputs: int
    outputs: int
    bits: int | None
    has_offsets: bool
    block: int = BLOCK


def layout_of(weight: Weight) -> LinearLayout:
    if isinstance(weight, DenseWeight):
        outputs, inputs = weight.values.shape
        return LinearLayout(inputs, outputs, None, False)
    outputs, inputs = weight.shape
    return LinearLayout(inputs, outputs, weight.bits, weight.offsets is not None, weight.block)
