"""ModelSpec + tensors -> the graph's initializers and the layouts of its linear layers.

Knows which tensors each initializer is made of; emits no nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.graph.layouts import LinearLayout, layout_of
from surefoot.graph.quantization import GATHER_CONSTANTS, Array, fuse, initializers
from surefoot.graph.spec import DenseWeight, ModelSpec, WeightSource

HEAD = "head"
EMBEDDING = "embedding"
EMBEDDING_SCALE = "embedding_scale"
FINAL_NORM = "final_norm"
COS, SIN = "rope_cos", "rope_sin"
LOCAL_COS, LOCAL_SIN = "rope_cos_local", "rope_sin_local"

DUMMY_POSITIONS = 8
"""Rotations beyond the context, for the dummy tokens of the deterministic mode."""


def convert_weights(
    spec: ModelSpec, source: WeightSource
) -> tuple[dict[str, Array], dict[str, LinearLayout]]:
    """All initializers of the graph, and the layout of each linear layer.

    A tied model has no `head`: the embedding's arrays serve both ends.
    """
    arrays = _constants(spec) | _rotations(spec)
    layouts: dict[str, LinearLayout] = {}
    for name, tensor in _norms(spec).items():
        arrays[name] = _vector(source, tensor)
    for layer in range(spec.num_layers):
        arrays |= _attention_vectors(spec, source, f"blk.{layer}")
    for name, parts in _linears(spec).items():
        weights = fuse([source.load(tensor) for tensor in parts])
        keys = [name] if len(weights) == 1 else [f"{name}.{run}" for run in range(len(weights))]
        for key, weight in zip(keys, weights, strict=True):
            layouts[key] = layout_of(weight)
            arrays |= initializers(key, weight)
    return arrays, layouts


def _constants(spec: ModelSpec) -> dict[str, Array]:
    arrays: dict[str, Array] = dict(GATHER_CONSTANTS)
    arrays |= {"one": np.array([1], dtype=np.int32), "first_axis": np.array([0], dtype=np.int64)}
    if spec.embedding_scale != 1:
        arrays[EMBEDDING_SCALE] = np.array(spec.embedding_scale, dtype=np.float32)
    if spec.qk_norm:
        arrays["head_shape"] = np.array([0, -1, spec.head_dim], dtype=np.int64)
        normed = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        arrays["qk_and_v"] = np.array([normed, spec.num_kv_heads * spec.head_dim], dtype=np.int64)
    return arrays


def _norms(spec: ModelSpec) -> dict[str, str]:
    names = {FINAL_NORM: "output_norm.weight"}
    kinds = ["attn_norm", "ffn_norm"]
    if spec.post_norms:
        kinds += ["post_attention_norm", "post_ffw_norm"]
    for layer in range(spec.num_layers):
        for kind in kinds:
            names[f"blk.{layer}.{kind}"] = f"blk.{layer}.{kind}.weight"
    return names


def _vector(source: WeightSource, tensor: str) -> NDArray[np.float32]:
    weight = source.load(tensor)
    assert isinstance(weight, DenseWeight), tensor
    return weight.values


def _attention_vectors(spec: ModelSpec, source: WeightSource, block: str) -> dict[str, Array]:
    """Biases of the fused q, k, v; norm weights `[q heads + k heads, head_dim]`."""
    arrays: dict[str, Array] = {}
    if spec.qkv_bias:
        biases = [_vector(source, f"{block}.attn_{part}.bias") for part in "qkv"]
        arrays[f"{block}.qkv_bias"] = np.concatenate(biases)
    if spec.qk_norm:
        rows = [(spec.num_heads, "q"), (spec.num_kv_heads, "k")]
        norms = [
            np.tile(_vector(source, f"{block}.attn_{part}_norm.weight"), (count, 1))
            for count, part in rows
        ]
        arrays[f"{block}.qk_norm"] = np.concatenate(norms)
    return arrays


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


def _rotations(spec: ModelSpec) -> dict[str, Array]:
    """`[context + DUMMY_POSITIONS, head_dim / 2]`: cosines and sines of each position's angles.
    Only what some layer rotates by: ONNX Runtime refuses a graph with tables that nothing reads."""
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float64) / spec.head_dim
    frequencies = spec.rope_theta**-exponents
    if spec.rope_factors:
        frequencies = frequencies / np.array(spec.rope_factors)
    positions = np.arange(spec.context_length + DUMMY_POSITIONS, dtype=np.float64)
    angles = np.outer(positions, frequencies)
    arrays: dict[str, Array] = {}
    if not has_local_rotation(spec) or not all(spec.windows):
        arrays[COS] = np.cos(angles).astype(np.float32)
        arrays[SIN] = np.sin(angles).astype(np.float32)
    if has_local_rotation(spec):
        assert spec.local_rope_theta is not None
        angles = np.outer(positions, spec.local_rope_theta**-exponents)
        arrays[LOCAL_COS] = np.cos(angles).astype(np.float32)
        arrays[LOCAL_SIN] = np.sin(angles).astype(np.float32)
    return arrays


def has_local_rotation(spec: ModelSpec) -> bool:
    """Layers with a window rotate by tables of their own."""
    return spec.local_rope_theta is not None and any(spec.windows)
