"""GGUF metadata -> ModelSpec, family by family.

Knows GGUF's keys and llama.cpp's defaults for those that are missing; reads no tensor.
"""

from __future__ import annotations

import math
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

MAX_CONTEXT = 1 << 24
"""Tables of rotations are made for a model's whole context. The longest that a model was trained
for is ten million tokens; more is a damaged file."""

MAX_LAYERS, MAX_HEAD_DIM = 4096, 8192
"""Something is made for each layer, and each element of a head, before tensors are looked for, and
no model has a tenth of that. More is a damaged file."""

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

    def flags(self, key: str) -> list[bool] | None:
        """A list's items as yes and no; None when there is no list."""
        value = self._metadata.get(key)
        return [bool(item) for item in value] if isinstance(value, list) else None

    def count(self, key: str, default: int | None = None, most: float = math.inf) -> int:
        """A number of something that there must be at least one of, and `most` at most."""
        count = int(self._positive(key, self.get(key, int, default)))
        if count > most:
            raise ModelError(f"{self.file}: metadata {key} is {count}, above {most}")
        return count

    def positive(self, key: str, default: float | None = None) -> float:
        return self._positive(key, self.get(key, float, default))

    def _positive(self, key: str, value: float) -> float:
        if not 0 < value < float("inf"):
            raise ModelError(f"{self.file}: metadata {key} is {value}, not a number above 0")
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
    heads = fields.count(f"{arch}.attention.head_count")
    kv_heads = fields.count(f"{arch}.attention.head_count_kv", heads)
    if heads % kv_heads:
        raise ModelError(f"{fields.file}: {arch} has {heads} heads for {kv_heads} of keys")
    hidden = fields.count(f"{arch}.embedding_length")
    head_dim = fields.count(f"{arch}.attention.key_length", hidden // heads, MAX_HEAD_DIM)
    for key in ("rope.dimension_count", "attention.value_length"):
        found = fields.get(f"{arch}.{key}", int, head_dim)
        if found != head_dim:
            raise ModelError(
                f"{fields.file}: {arch}.{key} is {found}; only that of the whole head, "
                f"{head_dim}, is supported"
            )
    return ModelSpec(
        architecture=arch,
        num_layers=fields.count(f"{arch}.block_count", most=MAX_LAYERS),
        hidden_size=hidden,
        intermediate_size=fields.count(f"{arch}.feed_forward_length"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=_context_length(fields, arch),
        rms_eps=fields.positive(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope_theta=fields.positive(f"{arch}.rope.freq_base", 10000.0),
        # The converter reorders the rows of q and k for this family alone.
        rope_interleaved=arch == "llama",
        tied_embedding=tied,
    )


def _context_length(fields: Fields, arch: str) -> int:
    length = fields.count(f"{arch}.context_length")
    if length > MAX_CONTEXT:
        raise ModelError(
            f"{fields.file}: metadata {arch}.context_length is {length}, above {MAX_CONTEXT}"
        )
    return length


def _rope_factors(
    fields: Fields, spec: ModelSpec, rope_freqs: tuple[float, ...]
) -> tuple[float, ...]:
    """Scaled rotations that would be read wrongly are refused, never ignored."""
    prefix = f"{spec.architecture}.rope.scaling"
    # llama.cpp takes a factor without a type for linear scaling.
    lone = fields.get(f"{prefix}.factor", float, 1.0) != 1 and not rope_freqs
    kind = fields.get(f"{prefix}.type", str, "linear" if lone else "none")
    pairs = spec.head_dim // 2
    if rope_freqs and len(rope_freqs) != pairs:
        raise ModelError(
            f"{fields.file}: rope_freqs.weight has {len(rope_freqs)} factors for {pairs} pairs"
        )
    if kind == "linear" and not rope_freqs:
        factor = fields.positive(f"{prefix}.factor")
        return (factor,) * pairs if factor != 1 else ()
    if kind != "none":
        raise ModelError(f"{fields.file}: rope scaling ({kind}) is not supported")
    return rope_freqs


def _gemma3(fields: Fields, spec: ModelSpec) -> ModelSpec:
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if fields.get(f"gemma3.{key}", float, 0.0):
            raise ModelError(f"{fields.file}: gemma3.{key} is not supported")
    window = fields.count("gemma3.attention.sliding_window")
    return gemma3_like(
        spec,
        windows=_windows(fields, "gemma3.attention.sliding_window_pattern", window, spec),
        local_theta=fields.get("gemma3.rope.freq_base_swa", float, 10000.0),
        attention_scale=(
            (spec.hidden_size / spec.num_heads) ** -0.5
            if spec.num_layers == GEMMA3_27B_LAYERS
            else None
        ),
    )


def _windows(fields: Fields, key: str, window: int, spec: ModelSpec) -> tuple[int, ...]:
    """Per layer. The key, where there is one, is the pattern's length, or a flag for each layer
    that has a window."""
    flags = fields.flags(key)
    if flags is None:
        return gemma3_windows(spec.num_layers, window, fields.count(key, GEMMA3_PATTERN))
    if len(flags) != spec.num_layers:
        raise ModelError(
            f"{fields.file}: metadata {key} has {len(flags)} flags for {spec.num_layers} layers"
        )
    return tuple(window if flag else 0 for flag in flags)


def gemma3_windows(num_layers: int, window: int, pattern: int = GEMMA3_PATTERN) -> tuple[int, ...]:
    """Every layer has a window but the last of each `pattern`."""
    return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(num_layers))


def gemma3_like(
    spec: ModelSpec,
    windows: tuple[int, ...],
    local_theta: float,
    attention_scale: float | None,
) -> ModelSpec:
    """What all of the family share."""
    return replace(
        spec,
        qk_norm=True,
        post_norms=True,
        activation="gelu_tanh",
        embedding_scale=spec.hidden_size**0.5,
        windows=windows,
        local_rope_theta=local_theta,
        attention_scale=attention_scale,
    )
