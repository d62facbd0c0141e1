"""Emitting nodes: a list that grows, and the few composite layers a decoder is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from surefoot.graph.spec import Activation

MICROSOFT = "com.microsoft"


class NodeList:
    """Nodes in order; each emitter returns the name of what it computed."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._count = 0

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Append one node; its first output is named after it unless `outputs` says otherwise."""
        self._count += 1
        name = f"{op}_{self._count}"
        outputs = [name] if outputs is None else outputs
        self.nodes.append(
            helper.make_node(op, list(inputs), list(outputs), name, domain=domain, **attributes)
        )
        return outputs[0]

    def unique(self, stem: str, count: int) -> list[str]:
        """Names for a node with several outputs."""
        return [f"{stem}_{self._count + 1}_{index}" for index in range(count)]

    def rms_norm(self, hidden: str, weight: str, eps: float) -> str:
        return self.emit("SimplifiedLayerNormalization", [hidden, weight], axis=-1, epsilon=eps)

    def add_rms_norm(self, hidden: str, branch: str, weight: str, eps: float) -> tuple[str, str]:
        """`sum = hidden + branch` and its norm, in one kernel: `(normed, sum)`."""
        normed, total = self.unique("SkipNorm", 2)
        self.emit(
            "SkipSimplifiedLayerNormalization",
            [hidden, branch, weight],
            outputs=[normed, "", "", total],
            domain=MICROSOFT,
            epsilon=eps,
        )
        return normed, total

    def gated(self, gate_up: str, activation: Activation) -> str:
        """`activation(gate) * up` of a fused `[T, 2 * mlp]`; QuickGelu with alpha 1 is silu, and
        FastGelu is gelu by tanh."""
        gate, up = self.unique("GateUp", 2)
        self.emit("Split", [gate_up], outputs=[gate, up], axis=-1, num_outputs=2)
        if activation == "silu":
            open_gate = self.emit("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0)
        else:
            open_gate = self.emit("FastGelu", [gate], domain=MICROSOFT)
        return self.emit("Mul", [open_gate, up])
