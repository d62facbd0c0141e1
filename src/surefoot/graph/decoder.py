"""ModelSpec + layouts -> one ONNX graph that runs R rows of any widths in one forward.

The fed tokens of all rows lie one behind the other, so every linear layer reads its weights once
for all of them. Attention alone is per row: the fused q, k, v are split by `row_lengths` and each
row has a GroupQueryAttention of its own over its own window, appending in place. A graph is built
for a fixed number of rows; graphs for other numbers share its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from surefoot.graph import io_names
from surefoot.graph.layers import MICROSOFT, NodeList
from surefoot.graph.quantization import (
    GATHER_CONSTANTS,
    Array,
    LinearEmitter,
    LinearLayout,
    fuse,
    initializers,
    layout_of,
)
from surefoot.graph.spec import DenseWeight, ModelSpec, WeightSource

BUILDER_VERSION = 2
"""Part of the cached graph's key: raise it when the same file must give another graph."""

DUMMY_POSITIONS = 8
"""Rotations beyond the context, for the dummy tokens of the deterministic mode."""

HEAD = "head"
EMBEDDING = "embedding"
FINAL_NORM = "final_norm"
COS, SIN = "rope_cos", "rope_sin"


def convert_weights(
    spec: ModelSpec, source: WeightSource
) -> tuple[dict[str, Array], dict[str, LinearLayout]]:
    """All initializers of the graph, and the layout of each linear layer.

    A tied model has no `head`: the embedding's arrays serve both ends.
    """
    arrays: dict[str, Array] = {COS: _rotation(spec, np.cos), SIN: _rotation(spec, np.sin)}
    arrays |= GATHER_CONSTANTS
    arrays |= {"one": np.array([1], dtype=np.int32), "first_axis": np.array([0], dtype=np.int64)}
    layouts: dict[str, LinearLayout] = {}
    for name, tensors in _norms(spec).items():
        weight = source.load(tensors)
        assert isinstance(weight, DenseWeight), tensors
        arrays[name] = weight.values
    for name, parts in _linears(spec).items():
        weights = [source.load(tensor) for tensor in parts]
        fused = fuse(weights)
        keys = [name] if len(fused) == 1 else [f"{name}.{run}" for run in range(len(fused))]
        for key, weight in zip(keys, fused, strict=True):
            layouts[key] = layout_of(weight)
            arrays |= initializers(key, weight)
    return arrays, layouts


def _norms(spec: ModelSpec) -> dict[str, str]:
    names = {FINAL_NORM: "output_norm.weight"}
    for layer in range(spec.num_layers):
        for norm in ("attn_norm", "ffn_norm"):
            names[f"blk.{layer}.{norm}"] = f"blk.{layer}.{norm}.weight"
    return names


def _linears(spec: ModelSpec) -> dict[str, list[str]]:
    """The graph's linear layers and the tensors each is fused from."""
    names = {EMBEDDING: ["token_embd.weight"]}
    if not spec.tied_embedding:
        names[HEAD] = ["output.weight"]
    for layer in range(spec.num_layers):
        block = f"blk.{layer}"
        names[f"{block}.qkv"] = [f"{block}.attn_{part}.weight" for part in "qkv"]
        names[f"{block}.attn_output"] = [f"{block}.attn_output.weight"]
        names[f"{block}.gate_up"] = [f"{block}.ffn_{part}.weight" for part in ("gate", "up")]
        names[f"{block}.ffn_down"] = [f"{block}.ffn_down.weight"]
    return names


def _rotation(
    spec: ModelSpec, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float32]:
    """`[context + DUMMY_POSITIONS, head_dim / 2]`: cosines or sines of each position's angles."""
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float64) / spec.head_dim
    frequencies = spec.rope_theta**-exponents
    positions = np.arange(spec.context_length + DUMMY_POSITIONS, dtype=np.float64)
    return function(np.outer(positions, frequencies)).astype(np.float32)


def build_decoder(
    spec: ModelSpec,
    layouts: Mapping[str, LinearLayout],
    weights: Iterable[onnx.TensorProto],
    num_rows: int,
    accuracy_level: int,
) -> onnx.ModelProto:
    """The graph for `num_rows` rows; inputs and outputs as `io_names` describes them."""
    builder = _DecoderBuilder(spec, layouts, num_rows, accuracy_level)
    builder.build()
    graph = helper.make_graph(
        builder.nodes.nodes,
        f"{spec.architecture}_{num_rows}",
        _graph_inputs(spec, num_rows),
        _graph_outputs(spec, num_rows),
        initializer=list(weights),
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class _DecoderBuilder:
    """One pass over the layers, emitting nodes."""

    def __init__(
        self,
        spec: ModelSpec,
        layouts: Mapping[str, LinearLayout],
        num_rows: int,
        accuracy_level: int,
    ) -> None:
        self.nodes = NodeList()
        self._spec = spec
        self._rows = range(num_rows)
        self._linear = LinearEmitter(self.nodes, layouts, accuracy_level)
        self._head = HEAD if HEAD in layouts else EMBEDDING
        self._totals: list[str] = []
        self._last_positions: list[str] = []

    def build(self) -> None:
        self._split_lengths()
        nodes, spec = self.nodes, self._spec
        total = self._linear.emit_gather(EMBEDDING, io_names.INPUT_IDS)
        normed = nodes.rms_norm(total, "blk.0.attn_norm", spec.rms_eps)
        for layer in range(spec.num_layers):
            block = f"blk.{layer}"
            mixed = self._attention(layer, self._linear.emit(f"{block}.qkv", normed))
            branch = self._linear.emit(f"{block}.attn_output", mixed)
            normed, total = nodes.add_rms_norm(total, branch, f"{block}.ffn_norm", spec.rms_eps)
            gated = nodes.swiglu(self._linear.emit(f"{block}.gate_up", normed))
            branch = self._linear.emit(f"{block}.ffn_down", gated)
            if layer + 1 < spec.num_layers:
                weight = f"blk.{layer + 1}.attn_norm"
                normed, total = nodes.add_rms_norm(total, branch, weight, spec.rms_eps)
        self._answer(total, branch)

    def _answer(self, total: str, branch: str) -> None:
        """Gather before the head: the other positions' logits would be read by nobody."""
        nodes = self.nodes
        total, branch = (nodes.emit("Gather", [x, io_names.ASKED]) for x in (total, branch))
        normed, _ = nodes.add_rms_norm(total, branch, FINAL_NORM, self._spec.rms_eps)
        self._linear.emit(self._head, normed, io_names.LOGITS)
        nodes.emit("ArgMax", [io_names.LOGITS], outputs=[io_names.NEXT_TOKENS], axis=-1, keepdims=0)
        nodes.emit("ReduceL1", [normed, "last_axis"], outputs=[io_names.ACTIVITY], keepdims=0)

    def _split_lengths(self) -> None:
        nodes = self.nodes
        if len(self._rows) == 1:
            self._totals = [io_names.TOTAL_LENGTHS]
        else:
            self._totals = nodes.unique("Total", len(self._rows))
            nodes.emit(
                "Split",
                [io_names.TOTAL_LENGTHS],
                outputs=self._totals,
                axis=0,
                num_outputs=len(self._rows),
            )
        self._last_positions = [nodes.emit("Sub", [total, "one"]) for total in self._totals]

    def _attention(self, layer: int, fused: str) -> str:
        """`[T, q + k + v] -> [T, q]`, each row over its own window."""
        nodes = self.nodes
        if len(self._rows) == 1:
            parts = [fused]
        else:
            parts = nodes.unique("Rows", len(self._rows))
            nodes.emit("Split", [fused, io_names.ROW_LENGTHS], outputs=parts, axis=0)
        mixed = [
            nodes.emit("Squeeze", [self._attend(layer, row, parts[row]), "first_axis"])
            for row in self._rows
        ]
        return mixed[0] if len(mixed) == 1 else nodes.emit("Concat", mixed, axis=0)

    def _attend(self, layer: int, row: int, fused: str) -> str:
        spec = self._spec
        (output,) = self.nodes.unique("Attention", 1)
        present = [io_names.present_key(layer, row), io_names.present_value(layer, row)]
        return self.nodes.emit(
            "GroupQueryAttention",
            [
                self.nodes.emit("Unsqueeze", [fused, "first_axis"]),
                "",
                "",
                io_names.past_key(layer, row),
                io_names.past_value(layer, row),
                self._last_positions[row],
                self._totals[row],
                COS,
                SIN,
            ],
            outputs=[output, *present],
            domain=MICROSOFT,
            num_heads=spec.num_heads,
            kv_num_heads=spec.num_kv_heads,
            do_rotary=1,
            rotary_interleaved=int(spec.rope_interleaved),
        )


def _graph_inputs(spec: ModelSpec, num_rows: int) -> list[onnx.ValueInfoProto]:
    info = helper.make_tensor_value_info
    inputs = [
        info(io_names.INPUT_IDS, TensorProto.INT64, ["T"]),
        info(io_names.ROW_LENGTHS, TensorProto.INT64, [num_rows]),
        info(io_names.TOTAL_LENGTHS, TensorProto.INT32, [num_rows]),
        info(io_names.ASKED, TensorProto.INT64, ["A"]),
    ]
    return inputs + _caches(spec, num_rows, io_names.past_key, io_names.past_value)


def _graph_outputs(spec: ModelSpec, num_rows: int) -> list[onnx.ValueInfoProto]:
    info = helper.make_tensor_value_info
    outputs = [
        info(io_names.NEXT_TOKENS, TensorProto.INT64, ["A"]),
        info(io_names.LOGITS, TensorProto.FLOAT, ["A", spec.vocab_size]),
        info(io_names.ACTIVITY, TensorProto.FLOAT, ["A"]),
    ]
    return outputs + _caches(spec, num_rows, io_names.present_key, io_names.present_value)


def _caches(
    spec: ModelSpec, num_rows: int, *names: Callable[[int, int], str]
) -> list[onnx.ValueInfoProto]:
    shape: list[str | int | None] = [1, spec.num_kv_heads, "capacity", spec.head_dim]
    return [
        helper.make_tensor_value_info(name(layer, row), TensorProto.FLOAT, shape)
        for row in range(num_rows)
        for layer in range(spec.num_layers)
        for name in names
    ]
