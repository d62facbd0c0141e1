"""GGUF metadata -> ModelSpec, family by family.

Knows GGUF's keys and llama.cpp's defaults for those that are missing; reads no tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec

ARCHITECTURES = ("gemma3", "llama", "qwen2", "qwen3")

GEMMA3_PATTERN = 6
"""Every sixth layer of Gemma 3 sees all positions (llama.cpp's `set_swa_pattern(6)`)."""

GEMMA3_27B_LAYERS = 62
"""The one size whose scores are scaled by hidden size over heads (llama.cpp, `LLM_TYPE_27B`)."""

T = TypeVar("T", int, float, str)


class Fields:
    """Typed look-ups in the metadata, with the file's name in every complaint."""

    def __init__(self, file: str, metadata: Mapping[str, object]) -> None:
        self.file = file
        self._metadata = metadata

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        value = self._metadata.get(key, default)
        if value is None:
            raise ModelError(f"{self.file}: metadata {key} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return kind(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ModelError(f"{self.file}: metadata {key} is {value!r}, not {kind.__name__}")
        return value


def read_spec(
    file: str,
    metadata: Mapping[str, object],
    vocab_size: int,
    tensors: Collection[str],
    rope_freqs: tuple[float, ...] = (),
) -> ModelSpec:
    """`vocab_size` is the embedding's, `rope_freqs` the tensor of that name. Raises `ModelError`
    for an architecture that is not known, a key that is missing or wrong, scaled rotations of a
    kind that is not known."""
    fields = Fields(file, metadata)
    arch = fields.get("general.architecture", str)
    if arch not in ARCHITECTURES:
        raise ModelError(
            f"{file}: architecture {arch!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    spec = _common(fields, arch, vocab_size, tied="output.weight" not in tensors)
    spec = replace(spec, rope_factors=_rope_factors(fields, spec, rope_freqs))
    if arch == "qwen2":
        return replace(spec, qkv_bias=True)
    if arch == "qwen3":
        return replace(spec, qk_norm=True)
    if arch == "gemma3":
        return _gemma3(fields, spec)
    return spec


def _common(fields: Fields, arch: str, vocab_size: int, tied: bool) -> ModelSpec:
    heads = fields.get(f"{arch}.attention.head_count", int)
    hidden = fields.get(f"{arch}.embedding_length", int)
    if heads < 1 or hidden < 1:
        raise ModelError(f"{fields.file}: {arch} has {heads} heads and hidden size {hidden}")
    head_dim = fields.get(f"{arch}.attention.key_length", int, hidden // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        found = fields.get(f"{arch}.{key}", int, head_dim)
        if found != head_dim:
            raise ModelError(
                f"{fields.file}: {arch}.{key} is {found}; only that of the whole head, "
                f"{head_dim}, is supported"
            )
    return ModelSpec(
        architecture=arch,
        num_layers=fields.get(f"{arch}.block_count", int),
        hidden_size=hidden,
        intermediate_size=fields.get(f"{arch}.feed_forward_length", int),
        num_heads=heads,
        num_kv_heads=fields.get(f"{arch}.attention.head_count_kv", int, heads),
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=fields.get(f"{arch}.context_length", int),
        rms_eps=fields.get(f"{arch}.attention.layer_norm_rms_epsilon", float),
        rope_theta=fields.get(f"{arch}.rope.freq_base", float, 10000.0),
        # The converter reorders the rows of q and k for this family alone.
        rope_interleaved=arch == "llama",
        tied_embedding=tied,
    )


def _rope_factors(
    fields: Fields, spec: ModelSpec, rope_freqs: tuple[float, ...]
) -> tuple[float, ...]:
    """Scaled rotations that would be read wrongly are refused, never ignored."""
    prefix = f"{spec.architecture}.rope.scaling"
    kind = fields.get(f"{prefix}.type", str, "none")
    pairs = spec.head_dim // 2
    if rope_freqs and len(rope_freqs) != pairs:
        raise ModelError(
            f"{fields.file}: rope_freqs.weight has {len(rope_freqs)} factors for {pairs} pairs"
        )
    if kind == "linear" and not rope_freqs:
        factor = fields.get(f"{prefix}.factor", float)
        return (factor,) * pairs if factor != 1 else ()
    if kind != "none":
        raise ModelError(f"{fields.file}: rope scaling ({kind}) is not supported")
    return rope_freqs


def _gemma3(fields: Fields, spec: ModelSpec) -> ModelSpec:
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if fields.get(f"gemma3.{key}", float, 0.0):
            raise ModelError(f"{fields.file}: gemma3.{key} is not supported")
    return gemma3_like(
        spec,
        window=fields.get("gemma3.attention.sliding_window", int),
        local_theta=fields.get("gemma3.rope.freq_base_swa", float, 10000.0),
        attention_scale=(
            (spec.hidden_size / spec.num_heads) ** -0.5
            if spec.num_layers == GEMMA3_27B_LAYERS
            else None
        ),
    )


def gemma3_like(
    spec: ModelSpec, window: int, local_theta: float, attention_scale: float | None
) -> ModelSpec:
    """What all of the family share."""
    return replace(
        spec,
        qk_norm=True,
        post_norms=True,
        activation="gelu_tanh",
        embedding_scale=spec.hidden_size**0.5,
        windows=tuple(
            0 if (layer + 1) % GEMMA3_PATTERN == 0 else window for layer in range(spec.num_layers)
        ),
        local_rope_theta=local_theta,
        attention_scale=attention_scale,
    )
