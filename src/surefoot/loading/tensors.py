"""Which tensors a model of a given spec has, by GGUF's names; a file is checked for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec

Shape = tuple[int, ...]


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Name to shape, outputs first."""
    hidden = spec.hidden_size
    shapes: dict[str, Shape] = {
        "token_embd.weight": (spec.vocab_size, hidden),
        "output_norm.weight": (hidden,),
    }
    if not spec.tied_embedding:
        shapes["output.weight"] = (spec.vocab_size, hidden)
    layer_shapes = _layer_shapes(spec)
    for layer in range(spec.num_layers):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in layer_shapes.items()}
    return shapes


def _layer_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, mlp = spec.hidden_size, spec.intermediate_size
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, Shape] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (query, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, query),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (mlp, hidden),
        "ffn_up.weight": (mlp, hidden),
        "ffn_down.weight": (hidden, mlp),
    }
    if spec.qkv_bias:
        shapes |= {"attn_q.bias": (query,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if spec.qk_norm:
        shapes |= {"attn_q_norm.weight": (spec.head_dim,), "attn_k_norm.weight": (spec.head_dim,)}
    if spec.post_norms:
        shapes |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
    return shapes


def check_tensors(
    file: str,
    spec: ModelSpec,
    found: Mapping[str, Shape],
    file_of: Callable[[str], str] | None = None,
) -> None:
    """Every tensor the graph needs is there in the right shape, and none besides: one that would
    be left out means a model that this spec does not describe. `file_of` tells which file holds a
    tensor, where there are several. Raises `ModelError`."""
    file_of = file_of or (lambda name: file)
    if spec.num_layers > len(found):
        raise ModelError(
            f"{file}: the metadata calls for {spec.num_layers} layers, there are {len(found)} "
            "tensors in all"
        )
    wanted = tensor_shapes(spec)
    for name in found:
        if name not in wanted:
            raise ModelError(
                f"{file_of(name)}: tensor {name} is no part of a {spec.architecture} model as "
                "surefoot knows it, and leaving it out would make another model of it"
            )
    for name, shape in wanted.items():
        if name not in found:
            raise ModelError(f"{file}: tensor {name} is missing")
        if found[name] != shape:
            raise ModelError(
                f"{file_of(name)}: tensor {name} has shape {list(found[name])}, "
                f"the metadata calls for {list(shape)}"
            )
