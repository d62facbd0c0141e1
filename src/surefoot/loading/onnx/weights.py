"""Stored tensors of an ONNX file -> the graph's forms, exactly, by GGUF's names.

MatMulNBits means `w = scale * (q - zero)`, zero being 2**(bits - 1) where none is stored: the very
form of `QuantizedWeight`, with `scale * (2**(bits - 1) - zero)` as offsets where zero points are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, ModelSpec, QuantizedWeight, Weight
from surefoot.loading.fidelity import finite
from surefoot.loading.gguf.blocks import from_bfloat16
from surefoot.loading.onnx.file import OnnxGraph
from surefoot.loading.onnx.graph import Attention, Linear, Matrix, OnnxDecoder
from surefoot.loading.tensors import Shape

Floats = NDArray[np.float32]
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a stored matrix, or elements of a stored vector: `[start, stop)`, None for all."""

    source: Matrix | str
    start: int = 0
    stop: int | None = None


def parts_of(decoder: OnnxDecoder, spec: ModelSpec) -> dict[str, Part]:
    """Where each of the model's tensors is, by GGUF's names."""
    parts = {
        "token_embd.weight": Part(decoder.embedding),
        "output_norm.weight": Part(decoder.final_norm),
    }
    if not spec.tied_embedding:
        parts["output.weight"] = Part(decoder.head)
    for index, layer in enumerate(decoder.layers):
        named: dict[str, Part] = {
            "attn_norm.weight": Part(layer.attn_norm),
            "attn_output.weight": Part(layer.output.matrix),
            "ffn_norm.weight": Part(layer.ffn_norm),
            "ffn_gate.weight": Part(layer.gate.matrix),
            "ffn_up.weight": Part(layer.up.matrix),
            "ffn_down.weight": Part(layer.down.matrix),
            **_attention_parts(layer.attention, spec),
        }
        parts |= {f"blk.{index}.{name}": part for name, part in named.items()}
    return parts


def check_fused(graph: OnnxGraph, decoder: OnnxDecoder, spec: ModelSpec) -> None:
    """Where one linear layer serves q, k and v, it has their rows and no others, and a split is of
    these. Raises `ModelError`."""
    sizes = [spec.num_heads * spec.head_dim, *[spec.num_kv_heads * spec.head_dim] * 2]
    for layer in decoder.layers:
        attention = layer.attention
        if len(attention.qkv) != 1:
            continue
        linear, file, name = attention.qkv[0], graph.file, attention.node.name
        sources: dict[str, Part] = {"weight": Part(linear.matrix)}
        if linear.bias:
            sources["bias"] = Part(linear.bias)
        for kind, shape in OnnxWeights(graph, sources).shapes().items():
            if shape[0] != sum(sizes):
                raise ModelError(
                    f"{file}: the {kind} for {name} has {shape[0]} rows; q, k and v have {sizes}"
                )
        if attention.split and graph.array(attention.split).tolist() != sizes:
            raise ModelError(f"{file}: q, k and v of {name} are not split as {sizes}")


def _attention_parts(attention: Attention, spec: ModelSpec) -> dict[str, Part]:
    kv = spec.num_kv_heads * spec.head_dim
    query = spec.num_heads * spec.head_dim
    bounds = [(0, query), (query, query + kv), (query + kv, query + 2 * kv)]
    parts: dict[str, Part] = {}
    for index, letter in enumerate("qkv"):
        if len(attention.qkv) == 1:
            linear, bound = attention.qkv[0], bounds[index]
            parts |= _linear_parts(f"attn_{letter}", linear, *bound)
        else:
            parts |= _linear_parts(f"attn_{letter}", attention.qkv[index])
    for letter, norm in (("q", attention.q_norm), ("k", attention.k_norm)):
        if norm:
            parts[f"attn_{letter}_norm.weight"] = Part(norm)
    return parts


def _linear_parts(
    name: str, linear: Linear, start: int = 0, stop: int | None = None
) -> dict[str, Part]:
    parts = {f"{name}.weight": Part(linear.matrix, start, stop)}
    if linear.bias:
        parts[f"{name}.bias"] = Part(linear.bias, start, stop)
    return parts


class OnnxWeights:
    """Tensors of an ONNX file by GGUF's names. Raises `ModelError` for a matrix whose tensors do
    not belong together."""

    def __init__(self, graph: OnnxGraph, parts: Mapping[str, Part]) -> None:
        self._graph = graph
        self._parts = parts

    def names(self) -> Iterable[str]:
        return self._parts.keys()

    def shapes(self) -> dict[str, Shape]:
        return {name: self._shape(part) for name, part in self._parts.items()}

    def type_of(self, name: str) -> str:
        source = self._parts[name].source
        if isinstance(source, str):
            return self._graph.type_of(source)
        if not source.bits:
            return self._graph.type_of(source.data)
        zeros = ", zero points" if source.zero_points else ""
        return f"ONNX {source.bits} bits, blocks of {source.block}{zeros}"

    def load(self, name: str) -> Weight:
        """Raises `ModelError` for a tensor that holds NaN or infinity."""
        return finite(f"{self._graph.file}: {name}", lambda: self._weight(self._parts[name]))

    def _weight(self, part: Part) -> Weight:
        source = part.source
        if isinstance(source, str) or not source.bits:
            return DenseWeight(self._floats(part))
        packed, scales, zeros = self._blocks(source, part)
        middle = np.float32(2 ** (source.bits - 1))
        offsets = None
        if zeros is not None and (zeros != middle).any():
            offsets = scales * (middle - zeros)
        return QuantizedWeight(source.bits, packed, scales, offsets, source.block)

    def values(self, name: str) -> Floats:
        """`scale * (q - zero)`, element by element."""
        part = self._parts[name]
        source = part.source
        if isinstance(source, str) or not source.bits:
            return self._floats(part)
        packed, scales, zeros = self._blocks(source, part)
        if zeros is None:
            zeros = np.full_like(scales, 2 ** (source.bits - 1))
        elements = packed
        if source.bits == 4:
            elements = np.stack([packed & 0x0F, packed >> 4], axis=-1)
        grouped = elements.reshape(*scales.shape, source.block).astype(np.float32)
        values: Floats = scales[..., None] * (grouped - zeros[..., None])
        return values.reshape(len(scales), -1)

    def _shape(self, part: Part) -> Shape:
        source = part.source
        if isinstance(source, str):
            (length,) = self._dims(source, 1)
            return (_count(part, length),)
        if not source.bits:
            dims = self._dims(source.data, 2)
            rows, columns = reversed(dims) if source.transposed else dims
            return _count(part, rows), columns
        rows, blocks = self._grid(source)
        return _count(part, rows), blocks * source.block

    def _dims(self, name: str, count: int) -> Shape:
        dims = self._graph.shape(name)
        if len(dims) != count:
            raise ModelError(
                f"{self._graph.file}: tensor {name} has shape {list(dims)}, not {count} dimensions"
            )
        return dims

    def _grid(self, matrix: Matrix) -> tuple[int, int]:
        """Rows and blocks a row; the builder's oldest files have scales in one dimension."""
        dims = self._graph.shape(matrix.data)
        packed = matrix.block * matrix.bits // 8
        if len(dims) == 2 and dims[1] % packed == 0:
            dims = (dims[0], dims[1] // packed, packed)
        if len(dims) != 3 or dims[2] != packed:
            raise ModelError(
                f"{self._graph.file}: tensor {matrix.data} has shape {list(dims)}, not "
                f"{matrix.bits} bits in blocks of {matrix.block}"
            )
        return dims[0], dims[1]

    def _blocks(
        self, matrix: Matrix, part: Part
    ) -> tuple[NDArray[np.uint8], Floats, Floats | None]:
        """Elements, scales and zero points of the part's rows."""
        rows, blocks = self._grid(matrix)
        cut = slice(part.start, part.stop)
        if self._graph.type_of(matrix.data) != "U8":
            raise ModelError(f"{self._graph.file}: tensor {matrix.data} does not hold bytes")
        packed = self._sized(matrix.data, rows * blocks * matrix.block * matrix.bits // 8)
        packed = packed.reshape(rows, blocks, -1)[cut]
        scales = as_floats(
            self._graph.type_of(matrix.scales), self._sized(matrix.scales, rows * blocks)
        )
        zeros = None
        if matrix.zero_points:
            zeros = self._zero_points(matrix, rows, blocks)[cut]
        return np.array(packed), scales.reshape(rows, blocks)[cut], zeros

    def _zero_points(self, matrix: Matrix, rows: int, blocks: int) -> Floats:
        """Floats, or integers packed like the elements, each row beginning with a whole byte."""
        name = matrix.zero_points
        kind = self._graph.type_of(name)
        if kind != "U8":
            return as_floats(kind, self._sized(name, rows * blocks)).reshape(rows, blocks)
        width = -(-blocks * matrix.bits // 8)
        stored = self._sized(name, rows * width).reshape(rows, width)
        if matrix.bits == 4:
            stored = np.stack([stored & 0x0F, stored >> 4], axis=-1).reshape(rows, -1)
        return stored[:, :blocks].astype(np.float32)

    def _sized(self, name: str, count: int) -> NDArray[Any]:
        array: NDArray[Any] = self._graph.array(name).reshape(-1)
        if len(array) != count:
            raise ModelError(
                f"{self._graph.file}: tensor {name} has {len(array)} elements, not {count}"
            )
        return array

    def _floats(self, part: Part) -> Floats:
        source = part.source
        name = source if isinstance(source, str) else source.data
        values = as_floats(self._graph.type_of(name), self._graph.array(name))
        if isinstance(source, Matrix) and source.transposed:
            values = np.ascontiguousarray(values.T)
        return values[part.start : part.stop]


def _count(part: Part, length: int) -> int:
    return len(range(length)[part.start : part.stop])


def as_floats(kind: str, raw: NDArray[np.generic]) -> Floats:
    """A copy in memory, so that it outlives the file and is aligned. Raises `ModelError` for
    integers."""
    if kind not in FLOATS:
        raise ModelError(f"a tensor of {kind} stands where floats belong: {', '.join(FLOATS)}")
    if kind == "BF16":
        return from_bfloat16(np.ascontiguousarray(raw))
    return np.array(raw, dtype=np.float32)
