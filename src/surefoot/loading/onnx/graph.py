"""The graph of onnxruntime-genai's model builder, read back: which stored tensor is which weight.

Walks from the logits to the token ids along the data itself, not by names, and takes every
operation for what it is: one that a Llama-like decoder has not, or that has it otherwise, is
refused with its name. Nothing that reaches the logits can so be overlooked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from surefoot.errors import ModelError
from surefoot.loading.onnx.file import OnnxGraph, OnnxNode

PAST, FIRST_OPTION = slice(3, 5), 9
"""GroupQueryAttention's inputs: keys and values of earlier tokens; from here on positions, biases
and scales, all of which change what is computed."""
SEQUENCE_LENGTHS = slice(5, 7)
Q_NORM, K_NORM = 14, 15
DOMAINS = ("", "ai.onnx", "com.microsoft")
INPUT_IDS, LOGITS = "input_ids", "logits"
"""What the builder calls the graph's token ids and its answer."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """`[outputs, inputs]`. `bits` 0: floats, stored `[inputs, outputs]` if `transposed`. Otherwise
    elements in blocks of `block` inputs with a scale each, and zero points or none."""

    data: str
    bits: int = 0
    block: int = 0
    scales: str = ""
    zero_points: str = ""
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix, what is added to its product, and the name of what it reads."""

    matrix: Matrix
    source: str
    bias: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention. `qkv`: one linear layer for all three, or three. Norms of heads where
    the family has them. `split`: the stored tensor that says how the one is split, if a node does
    that."""

    node: OnnxNode
    qkv: tuple[Linear, ...]
    q_norm: str = ""
    k_norm: str = ""
    split: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    attn_norm: str
    attention: Attention
    output: Linear
    ffn_norm: str
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class OnnxDecoder:
    """A whole model, first layer first. `rms_eps` is the same in every norm."""

    embedding: Matrix
    layers: tuple[Layer, ...]
    final_norm: str
    head: Matrix
    rms_eps: float


def read_decoder(graph: OnnxGraph, num_layers: int) -> OnnxDecoder:
    """Raises `ModelError` naming the node that does not fit."""
    return _Walk(graph).decoder(num_layers)


class _Walk:
    """From what is computed back to what computes it."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._makers: dict[str, OnnxNode] = {}
        for node in graph.nodes:
            for name in filter(None, node.outputs):
                if name in self._makers or name in graph.protos:
                    self._refuse(f"{name} is made more than once")
                self._makers[name] = node
        self._epsilons: set[float] = set()
        self._pasts: set[str] = {INPUT_IDS}

    def decoder(self, num_layers: int) -> OnnxDecoder:
        if num_layers > len(self._graph.nodes):
            self._refuse(f"{len(self._graph.nodes)} operations make no {num_layers} layers")
        if LOGITS not in self._graph.outputs:
            self._refuse(f"it does not answer with {LOGITS}")
        head = self._linear(LOGITS)
        if head.bias:
            self._refuse(f"the output matrix has a bias ({head.bias})")
        norm = self._norm(head.source)
        final_norm = norm.input(2)
        layers: list[Layer] = []
        for _ in range(num_layers):
            if norm.op != "SkipSimplifiedLayerNormalization":
                self._refuse(f"there are {len(layers)} layers, genai_config.json: {num_layers}")
            layer, norm = self._layer(norm)
            layers.insert(0, layer)
        if norm.op != "SimplifiedLayerNormalization":
            self._refuse(f"there are more than the {num_layers} layers of genai_config.json")
        if len(self._epsilons) != 1:
            self._refuse(f"its norms have different epsilons: {sorted(self._epsilons)}")
        embedding = self._embedding(norm.input(0))
        return OnnxDecoder(embedding, tuple(layers), final_norm, head.matrix, *self._epsilons)

    def _layer(self, after: OnnxNode) -> tuple[Layer, OnnxNode]:
        """The layer whose output the norm `after` reads, and the norm before it."""
        down = self._linear(after.input(1), biased=False)
        gate, up = self._gated(down.source)
        if gate.source != up.source:
            self._refuse(f"{gate.source} and {up.source} differ, one goes to gate, one to up")
        ffn_norm = self._norm(gate.source)
        self._same_total(after.input(0), ffn_norm)
        output = self._linear(ffn_norm.input(1), biased=False)
        attention = self._attention(output.source)
        sources = {linear.source for linear in attention.qkv}
        if len(sources) != 1:
            self._refuse(f"q, k and v read different inputs: {', '.join(sorted(sources))}")
        before = self._norm(*sources)
        self._same_total(ffn_norm.input(0), before)
        weight = before.input(2 if before.op.startswith("Skip") else 1)
        layer = Layer(weight, attention, output, ffn_norm.input(2), gate, up, down)
        return layer, before

    def _same_total(self, total: str, norm: OnnxNode) -> None:
        """The running total that is carried on is the one that the norm made or read."""
        is_skip = norm.op.startswith("Skip")
        if total != (norm.output(3) if is_skip else norm.input(0)):
            self._refuse(f"the norm {norm.name} does not hand on {total}")

    def _gated(self, source: str) -> tuple[Linear, Linear]:
        """`silu(gate) * up`, silu written as `gate * sigmoid(gate)`."""
        product = self._maker(source, "Mul")
        opened = self._maker(product.input(0), "Mul")
        sigmoid = self._maker(opened.input(1), "Sigmoid")
        if sigmoid.input(0) != opened.input(0):
            self._refuse(f"the activation at {opened.name} is no silu")
        gate = self._linear(opened.input(0), biased=False)
        return gate, self._linear(product.input(1), biased=False)

    def _attention(self, source: str) -> Attention:
        node = self._maker(source, "GroupQueryAttention")
        pasts = node.inputs[PAST]
        if not all(name in self._graph.inputs for name in pasts) or self._pasts & set(pasts):
            self._refuse(f"{node.name} has no past keys and values of its own among the inputs")
        self._pasts |= set(pasts)
        if any(name in self._graph.protos for name in node.inputs[SEQUENCE_LENGTHS]):
            self._refuse(f"{node.name} attends over a stored number of positions")
        extras = set(node.inputs[FIRST_OPTION:Q_NORM]) | set(node.inputs[K_NORM + 1 :])
        if extras - {""}:
            self._refuse(f"{node.name} has inputs that are not known: {sorted(extras - {''})}")
        if not node.input(1):
            return Attention(node, (self._linear(node.input(0)),))
        (q, q_norm), (k, k_norm) = (self._head_norm(node.input(index)) for index in (0, 1))
        q_norm, k_norm = q_norm or node.input(Q_NORM), k_norm or node.input(K_NORM)
        parts = (q, k, node.input(2))
        split = self._maker(q)
        if split.op != "Split":
            qkv = tuple(self._linear(name) for name in parts)
            return Attention(node, qkv, q_norm, k_norm)
        if split.outputs != parts or self._graph.whole(split, "axis", 0) not in (-1, 2):
            self._refuse(f"{split.name} does not split q, k and v in this order")
        return Attention(node, (self._linear(split.input(0)),), q_norm, k_norm, split.input(1))

    def _head_norm(self, source: str) -> tuple[str, str]:
        """What is normalized head by head before `source`, and the norm's weight; or no norm."""
        if self._maker(source).op != "Reshape":
            return source, ""
        norm = self._norm(self._maker(source).input(0))
        if norm.op != "SimplifiedLayerNormalization":
            self._refuse(f"{norm.name} is no norm of heads")
        return self._maker(norm.input(0), "Reshape").input(0), norm.input(1)

    def _linear(self, source: str, *, biased: bool = True) -> Linear:
        node = self._maker(source)
        bias = ""
        if node.op == "Add" and biased:
            bias = node.input(1)
            node = self._maker(node.input(0))
        if node.op == "MatMul":
            return Linear(Matrix(node.input(1), transposed=True), node.input(0), bias)
        if node.op != "MatMulNBits":
            self._unexpected(node, "a linear layer")
        if node.input(4) or node.attributes.get("weight_prepacked"):
            self._refuse(f"{node.name} has its inputs reordered or packed for one device")
        if node.input(5) and (bias or not biased):
            self._refuse(f"{node.name} has a bias")
        matrix = self._quantized(node, node.input(1), node.input(2), node.input(3))
        return Linear(matrix, node.input(0), bias or node.input(5))

    def _embedding(self, source: str) -> Matrix:
        node = self._maker(source)
        axis = "axis" if node.op == "Gather" else "gather_axis"
        if node.input(1) != INPUT_IDS or self._graph.whole(node, axis, 0):
            self._unexpected(node, f"the embedding of the graph's {INPUT_IDS}")
        data = node.input(0)
        maker = self._makers.get(data)
        if node.op == "Gather":
            if maker is None:
                return Matrix(data)
            if maker.op == "Transpose":
                return Matrix(maker.input(0), transposed=True)
        if node.op != "GatherBlockQuantized" or (maker is not None and maker.op != "Reshape"):
            self._unexpected(node, "the embedding")
        if node.attributes.get("quantize_axis", 1) != 1:
            self._refuse(f"{node.name} has blocks across tokens")
        stored = data if maker is None else maker.input(0)
        return self._quantized(node, stored, node.input(2), node.input(3))

    def _quantized(self, node: OnnxNode, data: str, scales: str, zero_points: str) -> Matrix:
        bits, block = (self._graph.whole(node, *each) for each in (("bits", 4), ("block_size", 0)))
        if bits not in (4, 8) or block < 16 or block & (block - 1):
            self._refuse(f"{node.name} has {bits} bits in blocks of {block}; 4 and 8 are known")
        if node.op == "MatMulNBits":
            inputs, outputs = (self._graph.whole(node, key, 0) for key in "KN")
            stored = math.prod(self._graph.shape(data)) * 8
            if stored != inputs * outputs * bits or inputs % block:
                self._refuse(f"{node.name} is said to have {inputs} inputs, {outputs} outputs")
        return Matrix(data, bits, block, scales, zero_points)

    def _norm(self, source: str) -> OnnxNode:
        """The norm that gives `source`."""
        node = self._maker(source)
        known = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
        if node.op not in known or node.output(0) != source or node.input(3):
            self._unexpected(node, "a norm")
        if not node.op.startswith("Skip") and self._graph.whole(node, "axis", -1) not in (-1, 2):
            self._refuse(f"{node.name} is a norm along another axis")
        epsilon = self._graph.number(node, "epsilon", 1e-5)
        if not 0 < epsilon < 1:
            self._refuse(f"{node.name} has epsilon {epsilon:g}")
        self._epsilons.add(epsilon)
        return node

    def _maker(self, name: str, op: str | None = None) -> OnnxNode:
        if name not in self._makers:
            self._refuse(f"nothing computes {name or 'an input that is left out'}")
        node = self._makers[name]
        if node.domain not in DOMAINS:
            self._refuse(f"{node.name} is {node.op} of {node.domain}")
        if op is not None and node.op != op:
            self._unexpected(node, op)
        return node

    def _unexpected(self, node: OnnxNode, wanted: str) -> NoReturn:
        self._refuse(f"{node.name or node.output(0)} is {node.op} where {wanted} was expected")

    def _refuse(self, why: str) -> NoReturn:
        raise ModelError(f"{self._graph.file} does not fit: {why}")
