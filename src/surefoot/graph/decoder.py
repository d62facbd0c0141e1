"""ModelSpec + layouts -> one ONNX graph that runs R rows of any widths in one forward.

The fed tokens of all rows lie one behind the other, so every linear layer reads its weights once
for all of them. Attention alone is per row: the fused q, k, v are split by `row_lengths` and each
row has a GroupQueryAttention of its own over its own window, appending in place. A graph is built
for a fixed number of rows; graphs for other numbers share its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper

from surefoot.graph import io_names
from surefoot.graph.layers import MICROSOFT, NodeList
from surefoot.graph.layouts import LinearLayout
from surefoot.graph.quantization import LinearEmitter
from surefoot.graph.spec import ModelSpec
from surefoot.graph.weights import (
    COS,
    EMBEDDING,
    EMBEDDING_SCALE,
    FINAL_NORM,
    HEAD,
    LOCAL_COS,
    LOCAL_SIN,
    SIN,
    has_local_rotation,
)


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
        if spec.embedding_scale != 1:
            total = nodes.emit("Mul", [total, EMBEDDING_SCALE])
        normed = nodes.rms_norm(total, "blk.0.attn_norm", spec.rms_eps)
        for layer in range(spec.num_layers):
            block = f"blk.{layer}"
            mixed = self._attention(layer, self._qkv(block, normed))
            branch = self._branch(f"{block}.attn_output", mixed, f"{block}.post_attention_norm")
            normed, total = nodes.add_rms_norm(total, branch, f"{block}.ffn_norm", spec.rms_eps)
            gated = nodes.gated(self._linear.emit(f"{block}.gate_up", normed), spec.activation)
            branch = self._branch(f"{block}.ffn_down", gated, f"{block}.post_ffw_norm")
            if layer + 1 < spec.num_layers:
                weight = f"blk.{layer + 1}.attn_norm"
                normed, total = nodes.add_rms_norm(total, branch, weight, spec.rms_eps)
        self._answer(total, branch)

    def _branch(self, linear: str, source: str, post_norm: str) -> str:
        """The last linear layer of a branch, normalized where the family does so."""
        branch = self._linear.emit(linear, source)
        if not self._spec.post_norms:
            return branch
        return self.nodes.rms_norm(branch, post_norm, self._spec.rms_eps)

    def _qkv(self, block: str, normed: str) -> str:
        """`[T, q + k + v]`, biased and its heads normalized where the family does so."""
        nodes, spec = self.nodes, self._spec
        fused = self._linear.emit(f"{block}.qkv", normed)
        if spec.qkv_bias:
            fused = nodes.emit("Add", [fused, f"{block}.qkv_bias"])
        if not spec.qk_norm:
            return fused
        query_key, value = nodes.unique("HeadNorm", 2)
        nodes.emit("Split", [fused, "qk_and_v"], outputs=[query_key, value], axis=-1)
        heads = nodes.emit("Reshape", [query_key, "head_shape"])
        normed_heads = nodes.rms_norm(heads, f"{block}.qk_norm", spec.rms_eps)
        flat = nodes.emit("Reshape", [normed_heads, "row_shape"])
        return nodes.emit("Concat", [flat, value], axis=-1)

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
        is_local = spec.window_of(layer) > 0 and has_local_rotation(spec)
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
                LOCAL_COS if is_local else COS,
                LOCAL_SIN if is_local else SIN,
            ],
            outputs=[output, *present],
            domain=MICROSOFT,
            num_heads=spec.num_heads,
            kv_num_heads=spec.num_kv_heads,
            do_rotary=1,
            rotary_interleaved=int(spec.rope_interleaved),
            **self._extra_attention(layer),
        )

    def _extra_attention(self, layer: int) -> dict[str, Any]:
        """Attributes where the layer departs from the operator's defaults."""
        extra: dict[str, Any] = {}
        if self._spec.window_of(layer):
            extra["local_window_size"] = self._spec.window_of(layer)
        if self._spec.attention_scale is not None:
            extra["scale"] = self._spec.attention_scale
        return extra


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
