"""Small folders in the form of onnxruntime-genai's model builder 0.18, written by `onnx`'s helpers:
the builder's operators, inputs and names, random weights. Shares no code with surefoot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
NORM, SKIP_NORM = "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"


@dataclass
class BuilderModel:
    """A Llama of two layers, 4 heads and 2 of keys and values, unless told so. `zero_points`:
    "none", "packed" or "float". `tied`: the embedding gathers the head's blocks. `packed_qkv`: one
    matrix for q, k and v."""

    kind: str = "llama"
    bits: int = 4
    head_bits: int = 8
    block: int = 32
    zero_points: str = "none"
    tied: bool = False
    packed_qkv: bool = True
    bias: bool = False
    head_norms: bool = False
    float_mlp: bool = False
    theta: float = 10000.0
    factors: Sequence[float] = ()
    layers: int = 2
    context: int = 128
    vocab: int = 96
    hidden: int = 64
    mlp: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    attention: dict[str, Any] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(5)
        self._rotation()
        total, branch = self._embedding(), ""
        for layer in range(self.layers):
            path = f"/model/layers.{layer}"
            normed, total = self._norm(f"{path}/input_layernorm", total, branch)
            branch = self._attention(layer, normed)
            normed, total = self._norm(f"{path}/post_attention_layernorm", total, branch)
            branch = self._mlp(f"{path}/mlp", normed)
        normed, _ = self._norm(f"/model/layers.{self.layers}/final_norm_layernorm", total, branch)
        self.matrix("/lm_head/MatMul", normed, self.hidden, self.vocab, self.head_bits, "logits")

    def _floats(self, *shape: int) -> NDArray[np.float32]:
        return self._random.normal(size=shape).astype(np.float32)

    def store(self, name: str, values: NDArray[Any]) -> str:
        self.tensors[name] = values
        return name

    def add(self, op: str, name: str, inputs: list[str], outputs: list[str], **more: Any) -> str:
        domain = MICROSOFT if op in MICROSOFT_OPS else ""
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **more))
        return outputs[0]

    def matrix(
        self, name: str, source: str, inputs: int, outputs: int, bits: int, result: str = ""
    ) -> str:
        """A quantized product; the values' spread is about one over the root of the inputs."""
        stem, blocks = name[1:].replace("/", "."), inputs // self.block
        size = self.block * bits // 8
        elements = self._random.integers(0, 256, (outputs, blocks, size), dtype=np.uint8)
        scales = np.abs(self._floats(outputs, blocks)) / 2 ** (bits - 1) / inputs**0.5
        names = [source, self.store(f"{stem}.weight_Q4", elements)]
        names.append(self.store(f"{stem}.weight_scales", scales.astype(np.float32)))
        if self.zero_points == "float":
            zeros = self._random.uniform(4, 12, (outputs, blocks)).astype(np.float32)
            names.append(self.store(f"{stem}.weight_zero_points", zeros))
        elif self.zero_points == "packed":
            shape = (outputs, -(-blocks * bits // 8))
            packed = self._random.integers(0, 256, shape, dtype=np.uint8)
            names.append(self.store(f"{stem}.weight_zero_points", packed))
        attributes = {"K": inputs, "N": outputs, "bits": bits, "block_size": self.block}
        result = result or f"{name}/output_0"
        return self.add(
            "MatMulNBits", f"{name}_Q4", names, [result], accuracy_level=0, **attributes
        )

    def _rotation(self) -> None:
        frequencies = self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        if len(self.factors):
            frequencies = frequencies / np.array(self.factors)
        frequencies = frequencies.astype(np.float32)
        angles = np.outer(np.arange(self.context, dtype=np.float32), frequencies)
        self.store("cos_cache", np.cos(angles))
        self.store("sin_cache", np.sin(angles))

    def _embedding(self) -> str:
        path = "/model/embed_tokens"
        if not self.tied:
            weight = self.store("model.embed_tokens.weight", self._floats(self.vocab, self.hidden))
            return self.add("Gather", f"{path}/Gather", [weight, "input_ids"], [f"{path}/output_0"])
        flat = self.store("flat", np.array([self.vocab, self.hidden * self.head_bits // 8]))
        data = "lm_head.MatMul.weight_Q4"
        shaped = self.add("Reshape", f"{path}/Reshape", [data, flat], [f"{path}/Reshape/output_0"])
        names = [shaped, "input_ids", "lm_head.MatMul.weight_scales"]
        names += ["lm_head.MatMul.weight_zero_points"] if self.zero_points == "packed" else []
        form = {"bits": self.head_bits, "block_size": self.block}
        return self.add(
            "GatherBlockQuantized", f"{path}/Gather", names, [f"{path}/output_0"],
            gather_axis=0, quantize_axis=1, **form,
        )  # fmt: skip

    def _norm(self, path: str, total: str, branch: str) -> tuple[str, str]:
        weight = self.store(f"{path[1:].replace('/', '.')}.weight", self._floats(self.hidden))
        normed = f"{path}/output_0"
        if not branch:
            self.add(NORM, f"{path}/LayerNorm", [total, weight], [normed], axis=-1, epsilon=1e-5)
            return normed, total
        handed_on = f"{path}/output_3"
        outputs = [normed, "", "", handed_on]
        self.add(SKIP_NORM, f"{path}/SkipLayerNorm", [total, branch, weight], outputs, epsilon=1e-5)
        return normed, handed_on

    def _projected(self, path: str, source: str, outputs: int) -> str:
        product = self.matrix(f"{path}/MatMul", source, self.hidden, outputs, self.bits)
        if not self.bias:
            return product
        bias = self.store(f"{path[1:].replace('/', '.')}.Add.bias", self._floats(outputs))
        return self.add("Add", f"{path}/Add", [product, bias], [f"{path}/Add/output_0"])

    def _head_norm(self, path: str, source: str, width: int) -> str:
        weight = self.store(f"{path[1:].replace('/', '.')}.weight", self._floats(self.head_dim))
        shapes = [
            self.store(f"{path}/{size}", np.array([0, -1, size])) for size in (self.head_dim, width)
        ]
        apart = self.add("Reshape", f"{path}/Reshape_1", [source, shapes[0]], [f"{path}/apart"])
        normed = self.add(
            NORM, f"{path}/{NORM}", [apart, weight], [f"{path}/normed"], axis=-1, epsilon=1e-5
        )
        return self.add("Reshape", f"{path}/Reshape_2", [normed, shapes[1]], [f"{path}/output_0"])

    def _attention(self, layer: int, source: str) -> str:
        path = f"/model/layers.{layer}/attn"
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.packed_qkv:
            inputs = [self._projected(f"{path}/qkv_proj", source, query + 2 * kv), "", ""]
            if self.head_norms:
                sizes = self.store(f"{path}/sizes", np.array([query, kv, kv]))
                names = [f"{path}/qkv_proj/Split/output_{index}" for index in range(3)]
                self.add("Split", f"{path}/qkv_proj/Split", [inputs[0], sizes], names, axis=-1)
                inputs = names
        else:
            widths = {"q": query, "k": kv, "v": kv}
            inputs = [self._projected(f"{path}/{p}_proj", source, w) for p, w in widths.items()]
        if self.head_norms:
            widths = {"q": query, "k": kv}
            for index, (part, width) in enumerate(widths.items()):
                inputs[index] = self._head_norm(f"{path}/{part}_norm", inputs[index], width)
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        inputs += [*past, "last", "total", "cos_cache", "sin_cache", "", "", ""]
        attributes = {
            "num_heads": self.heads,
            "kv_num_heads": self.kv_heads,
            "scale": self.head_dim**-0.5,
            "local_window_size": -1,
            "softcap": 0.0,
            "do_rotary": 1,
            "rotary_interleaved": 0,
        } | self.attention
        name = f"{path}/GroupQueryAttention"
        mixed = f"{name}/output_0"
        self.add("GroupQueryAttention", name, inputs, [mixed, *present], **attributes)
        return self.matrix(f"{path}/o_proj/MatMul", mixed, query, self.hidden, self.bits)

    def _mlp(self, path: str, source: str) -> str:
        gate, up = (self._wide(f"{path}/{part}_proj/MatMul", source) for part in ("gate", "up"))
        opened = self.add("Sigmoid", f"{path}/act_fn/Sigmoid", [gate], [f"{path}/act_fn/sigmoid"])
        silu = self.add("Mul", f"{path}/act_fn/Mul", [gate, opened], [f"{path}/act_fn/output_0"])
        product = self.add("Mul", f"{path}/Mul", [silu, up], [f"{path}/Mul/output_0"])
        return self.matrix(f"{path}/down_proj/MatMul", product, self.mlp, self.hidden, self.bits)

    def _wide(self, path: str, source: str) -> str:
        if not self.float_mlp:
            return self.matrix(path, source, self.hidden, self.mlp, self.bits)
        values = self._floats(self.hidden, self.mlp) / 8
        weight = self.store(f"{path[1:].replace('/', '.')}.weight", values)
        return self.add("MatMul", path, [source, weight], [f"{path}/output_0"])

    def proto(self) -> onnx.ModelProto:
        def value(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, kind, shape)

        inputs = [value("input_ids", TensorProto.INT64, 1, "length")]
        inputs += [value(name, TensorProto.INT32, *shape) for name, shape in LENGTHS.items()]
        outputs = [value("logits", TensorProto.FLOAT, 1, "length", self.vocab)]
        for layer in range(self.layers):
            for part in ("key", "value"):
                sizes = (self.kv_heads, "positions", self.head_dim)
                name = f"{layer}.{part}"
                inputs.append(value(f"past_key_values.{name}", TensorProto.FLOAT, 1, *sizes))
                outputs.append(value(f"present.{name}", TensorProto.FLOAT, 1, *sizes))
        stored = [numpy_helper.from_array(values, name) for name, values in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, initializer=stored)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def genai_config(self) -> dict[str, Any]:
        decoder = {
            "filename": "model.onnx",
            "head_size": self.head_dim,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
        }
        whole = {"type": self.kind, "vocab_size": self.vocab, "context_length": self.context}
        return {"model": {**whole, "eos_token_id": [2, 7], "decoder": decoder}}

    def write(self, folder: Path, *, external: bool = True) -> Path:
        folder.mkdir(parents=True)
        (folder / "genai_config.json").write_text(json.dumps(self.genai_config()))
        onnx.save(
            self.proto(), str(folder / "model.onnx"), save_as_external_data=external,
            location="model.onnx.data", size_threshold=0,
        )  # fmt: skip
        return folder

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """`[len(ids), vocab]` by ONNX Runtime, the graph run as it is."""
        session = ort.InferenceSession(
            self.proto().SerializeToString(), providers=["CPUExecutionProvider"]
        )
        feeds: dict[str, NDArray[Any]] = {
            "input_ids": np.array([ids]),
            "last": np.array([len(ids) - 1], dtype=np.int32),
            "total": np.array([len(ids)], dtype=np.int32),
        }
        empty = np.zeros((1, self.kv_heads, 0, self.head_dim), dtype=np.float32)
        for layer in range(self.layers):
            feeds |= {f"past_key_values.{layer}.{part}": empty for part in ("key", "value")}
        (logits,) = session.run(["logits"], feeds)
        found: NDArray[np.float32] = logits[0]
        return found


MICROSOFT_OPS = {"MatMulNBits", "GroupQueryAttention", "GatherBlockQuantized", SKIP_NORM}
LENGTHS: dict[str, tuple[int, ...]] = {"last": (1,), "total": (1,)}
"""What the builder computes from `attention_mask`: each row's last position, the length of all."""
