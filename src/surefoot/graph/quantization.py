"""Linear layers over block-quantized weights, exactly.

`w = s (q - 8) + o` splits into a symmetric part, which MatMulNBits computes fast, and
`blocksum(x) @ o.T`, where `blocksum` adds each run of 32 inputs. Float zero points would say the
same but fall off MatMulNBits' fast path (14 times slower); integer ones would round the offsets
and ruin the model (KL 0.26 nats on the default model).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray

from surefoot.graph.layers import MICROSOFT, NodeList
from surefoot.graph.layouts import LinearLayout, layout_of
from surefoot.graph.spec import DenseWeight, QuantizedWeight, Weight

Array = NDArray[np.generic]


def fuse(parts: list[Weight]) -> list[Weight]:
    """Weights that read the same input, one below the other; neighbours of the same form become
    one, so a list of one is the whole (a file may keep v in more bits than q and k)."""
    runs: list[list[Weight]] = []
    for part in parts:
        if runs and _form(runs[-1][0]) == _form(part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return [_stack(run) for run in runs]


def _form(weight: Weight) -> tuple[int | None, bool, int]:
    layout = layout_of(weight)
    return layout.bits, layout.has_offsets, layout.block


def _stack(parts: list[Weight]) -> Weight:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, DenseWeight):
        return DenseWeight(
            np.concatenate([part.values for part in parts if isinstance(part, DenseWeight)])
        )
    blocks = [part for part in parts if isinstance(part, QuantizedWeight)]
    offsets = [part.offsets for part in blocks if part.offsets is not None]
    return QuantizedWeight(
        first.bits,
        np.concatenate([part.packed for part in blocks]),
        np.concatenate([part.scales for part in blocks]),
        np.concatenate(offsets) if offsets else None,
        first.block,
    )


def initializers(name: str, weight: Weight) -> dict[str, Array]:
    """The arrays a linear layer `name` reads, by initializer name."""
    if isinstance(weight, DenseWeight):
        return {f"{name}.weight": weight.values}
    arrays: dict[str, Array] = {
        f"{name}.packed": np.ascontiguousarray(weight.packed),
        f"{name}.scales": weight.scales,
    }
    if weight.offsets is not None:
        arrays[f"{name}.offsets"] = weight.offsets
        inputs, block = weight.shape[1], weight.block
        arrays[block_matrix_name(inputs, block)] = block_matrix(inputs, block)
    return arrays


def block_matrix_name(inputs: int, block: int) -> str:
    return f"blocks_{inputs}_{block}"


def block_matrix(inputs: int, block: int) -> NDArray[np.float32]:
    """`[inputs, inputs / block]` of zeros and ones: `x @ block_matrix` sums each block of x. A
    product is one kernel call; Reshape and ReduceSum would be two."""
    return np.repeat(np.eye(inputs // block, dtype=np.float32), block, axis=0)


class LinearEmitter:
    """Emits linear layers, computing the block sums of an input once."""

    def __init__(
        self, nodes: NodeList, layouts: Mapping[str, LinearLayout], accuracy_level: int
    ) -> None:
        self._nodes = nodes
        self._layouts = layouts
        self._accuracy_level = accuracy_level
        self._block_sums: dict[tuple[str, int], str] = {}

    def emit(self, name: str, source: str, output: str | None = None) -> str:
        """`source [T, in] -> [T, out]`; parts that could not be fused are concatenated."""
        if name not in self._layouts:
            parts: list[str] = []
            while f"{name}.{len(parts)}" in self._layouts:
                parts.append(self.emit(f"{name}.{len(parts)}", source))
            return self._nodes.emit("Concat", parts, axis=-1)
        layout = self._layouts[name]
        outputs = None if output is None else [output]
        if layout.bits is None:
            return self._nodes.emit("Gemm", [source, f"{name}.weight"], outputs=outputs, transB=1)
        product = self._nodes.emit(
            "MatMulNBits",
            [source, f"{name}.packed", f"{name}.scales"],
            outputs=None if layout.has_offsets else outputs,
            domain=MICROSOFT,
            K=layout.inputs,
            N=layout.outputs,
            bits=layout.bits,
            block_size=layout.block,
            accuracy_level=self._accuracy_level,
        )
        if not layout.has_offsets:
            return product
        sums = self._sum_blocks(source, layout)
        return self._nodes.emit(
            "Gemm", [sums, f"{name}.offsets", product], outputs=outputs, transB=1
        )

    def emit_gather(self, name: str, indices: str) -> str:
        """Rows `[T, in]` of the matrix `name`, dequantized: an embedding look-up."""
        layout = self._layouts[name]
        nodes = self._nodes
        if layout.bits is None:
            return nodes.emit("Gather", [f"{name}.weight", indices])
        packed = nodes.emit("Gather", [f"{name}.packed", indices])
        if layout.bits == 4:
            low = nodes.emit("BitwiseAnd", [packed, "nibble_mask"])
            high = nodes.emit("BitShift", [packed, "nibble_shift"], direction="RIGHT")
            pair = [nodes.emit("Unsqueeze", [half, "last_axis"]) for half in (low, high)]
            joined = nodes.emit("Concat", pair, axis=-1)
            packed = nodes.emit("Reshape", [joined, "block_shape"])
        values = nodes.emit("Cast", [packed], to=onnx.TensorProto.FLOAT)
        centred = nodes.emit("Sub", [values, f"zero_point_{layout.bits}"])
        scales = nodes.emit("Gather", [f"{name}.scales", indices])
        product = nodes.emit("Mul", [centred, nodes.emit("Unsqueeze", [scales, "last_axis"])])
        if layout.has_offsets:
            offsets = nodes.emit("Gather", [f"{name}.offsets", indices])
            product = nodes.emit("Add", [product, nodes.emit("Unsqueeze", [offsets, "last_axis"])])
        return nodes.emit("Reshape", [product, "row_shape"])

    def _sum_blocks(self, source: str, layout: LinearLayout) -> str:
        key = (source, layout.block)
        if key not in self._block_sums:
            matrix = block_matrix_name(layout.inputs, layout.block)
            self._block_sums[key] = self._nodes.emit("MatMul", [source, matrix])
        return self._block_sums[key]


GATHER_CONSTANTS: dict[str, Array] = {
    "nibble_mask": np.array(15, dtype=np.uint8),
    "nibble_shift": np.array(4, dtype=np.uint8),
    "last_axis": np.array([-1], dtype=np.int64),
    "block_shape": np.array([0, 0, -1], dtype=np.int64),
    "row_shape": np.array([0, -1], dtype=np.int64),
    "zero_point_4": np.array(8, dtype=np.float32),
    "zero_point_8": np.array(128, dtype=np.float32),
}
"""Small constants that `emit_gather` refers to."""
