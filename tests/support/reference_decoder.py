"""An independent forward of the decoder families, in plain numpy.

Shares no code with surefoot. Written from the models' papers and reference code: one layer after
the other over all positions, no cache. Weights come by GGUF's names, as float arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """What the forward needs to know besides the weights' shapes. `windows` and `thetas` have one
    entry a layer; a window of 0 sees all positions before it."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    windows: Sequence[int]
    thetas: Sequence[float]
    interleaved: bool = False
    factors: Sequence[float] = ()
    gelu: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None


def reference_logits(
    family: Family, weights: Mapping[str, Floats], ids: Sequence[int]
) -> NDArray[np.float64]:
    """`[len(ids), vocab]`: the output after each token, in the weights' precision."""
    hidden = weights["token_embd.weight"][list(ids)] * family.embedding_scale
    for layer in range(len(family.windows)):
        block = {
            name.removeprefix(f"blk.{layer}."): value
            for name, value in weights.items()
            if name.startswith(f"blk.{layer}.")
        }
        branch = _attention(family, block, layer, _norm(hidden, block["attn_norm.weight"], family))
        hidden = hidden + _post(family, block, "post_attention_norm.weight", branch)
        branch = _feed_forward(family, block, _norm(hidden, block["ffn_norm.weight"], family))
        hidden = hidden + _post(family, block, "post_ffw_norm.weight", branch)
    head = weights.get("output.weight", weights["token_embd.weight"])
    logits = _norm(hidden, weights["output_norm.weight"], family) @ head.T
    return logits.astype(np.float64)


def _norm(values: Floats, weight: Floats, family: Family) -> Floats:
    return values / np.sqrt((values**2).mean(axis=-1, keepdims=True) + family.eps) * weight


def _post(family: Family, block: Mapping[str, Floats], name: str, branch: Floats) -> Floats:
    return _norm(branch, block[name], family) if name in block else branch


def _feed_forward(family: Family, block: Mapping[str, Floats], values: Floats) -> Floats:
    gate, up = values @ block["ffn_gate.weight"].T, values @ block["ffn_up.weight"].T
    if family.gelu:
        gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    else:
        gate = gate / (1 + np.exp(-gate))
    return (gate * up) @ block["ffn_down.weight"].T


def _attention(family: Family, block: Mapping[str, Floats], layer: int, values: Floats) -> Floats:
    count = len(values)
    heads = {}
    for part in "qkv":
        projected = values @ block[f"attn_{part}.weight"].T + block.get(f"attn_{part}.bias", 0)
        heads[part] = projected.reshape(count, -1, family.head_dim)
        if f"attn_{part}_norm.weight" in block:
            heads[part] = _norm(heads[part], block[f"attn_{part}_norm.weight"], family)
    query = _rotate(family, layer, heads["q"])
    key = _rotate(family, layer, heads["k"])
    scale = family.attention_scale or family.head_dim**-0.5
    distance = np.subtract.outer(np.arange(count), np.arange(count))
    hidden = (distance < 0) | ((distance >= family.windows[layer]) & (family.windows[layer] > 0))
    mixed = np.empty_like(query)
    for head in range(family.heads):
        shared = head * family.kv_heads // family.heads
        scores = np.where(hidden, -np.inf, query[:, head] @ key[:, shared].T * scale)
        odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed[:, head] = odds / odds.sum(axis=-1, keepdims=True) @ heads["v"][:, shared]
    return mixed.reshape(count, -1) @ block["attn_output.weight"].T


def _rotate(family: Family, layer: int, values: Floats) -> Floats:
    half = family.head_dim // 2
    frequencies = family.thetas[layer] ** (-np.arange(half) / half)
    if len(family.factors):
        frequencies = frequencies / np.asarray(family.factors)
    angles = np.outer(np.arange(len(values)), frequencies)[:, None, :]
    turned = np.empty_like(values)
    first = np.s_[..., 0::2] if family.interleaved else np.s_[..., :half]
    second = np.s_[..., 1::2] if family.interleaved else np.s_[..., half:]
    turned[first] = values[first] * np.cos(angles) - values[second] * np.sin(angles)
    turned[second] = values[first] * np.sin(angles) + values[second] * np.cos(angles)
    return turned
