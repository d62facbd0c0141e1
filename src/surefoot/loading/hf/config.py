"""A Hugging Face `config.json` -> ModelSpec, in the old and the new style of its keys."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.gguf.spec import (
    GEMMA3_PATTERN,
    MAX_CONTEXT,
    MAX_HEAD_DIM,
    MAX_LAYERS,
    gemma3_like,
    gemma3_windows,
)

FAMILIES = {
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
"""`model_type` to the architecture's name in GGUF."""

HUGE = 1 << 64
"""What greater integers count as: more digits than floats hold must not break a message."""

T = TypeVar("T", int, float)


class HfConfig:
    """The text model's part of `config.json`. Raises `ModelError`, with the folder's name."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        whole = read_json(folder / "config.json")
        self.text: Mapping[str, Any] = self._part(whole, "text_config") or whole
        self.quantization = self._part(whole, "quantization") or self._part(
            whole, "quantization_config"
        )
        self.model_type = str(self.text.get("model_type", whole.get("model_type")))
        if self.model_type not in FAMILIES:
            raise ModelError(
                f"{self.name}: model_type {self.model_type!r} is not supported; "
                f"supported: {', '.join(FAMILIES)}"
            )

    def _part(self, whole: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
        part = whole.get(key)
        if part is not None and not isinstance(part, Mapping):
            raise ModelError(f"{self.name}: {key} in config.json is {part!r}, not an object")
        return part

    @property
    def architecture(self) -> str:
        return FAMILIES[self.model_type]

    def number(
        self,
        key: str,
        kind: type[T],
        default: T | None = None,
        part: Mapping[str, Any] | None = None,
    ) -> T:
        """Of the text model, or of a `part` of its configuration."""
        value = (self.text if part is None else part).get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"{self.name}: {key} in config.json is {value!r}, not a number")
        if isinstance(value, int):
            value = min(max(value, -HUGE), HUGE)
        if kind is int and not float(value).is_integer():
            raise ModelError(f"{self.name}: {key} in config.json is {value!r}, not a whole number")
        return kind(value)

    def count(self, key: str, default: int | None = None, most: float = math.inf) -> int:
        """A number of something that there must be at least one of, and `most` at most."""
        value = self.number(key, int, default)
        if value < 1:
            raise ModelError(f"{self.name}: {key} in config.json is {value}, not at least 1")
        if value > most:
            raise ModelError(f"{self.name}: {key} in config.json is {value}, above {most}")
        return value

    def positive(
        self, key: str, default: float | None = None, part: Mapping[str, Any] | None = None
    ) -> float:
        value = self.number(key, float, default, part)
        if not 0 < value < math.inf:
            raise ModelError(f"{self.name}: {key} in config.json is {value}, not above 0")
        return value

    def refuse(self, key: str, *allowed: object) -> None:
        """Values that surefoot would ignore make another model: raise for them."""
        if self.text.get(key) not in (None, *allowed):
            raise ModelError(
                f"{self.name}: {key} = {self.text[key]!r} in config.json is not supported"
            )


def read_json(path: Path) -> dict[str, Any]:
    """Raises `ModelError` unless the file is a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path.parent.name}: {path.name} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path.parent.name}: {path.name} is no JSON object")
    return value


def read_spec(config: HfConfig, has_head: bool) -> ModelSpec:
    """`has_head`: the files hold an output matrix of their own. Raises `ModelError`."""
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", heads)
    hidden = config.count("hidden_size")
    if heads % kv_heads:
        raise ModelError(f"{config.name} has {heads} heads for {kv_heads} of keys and values")
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        config.refuse(key)
    config.refuse("partial_rotary_factor", 1, 1.0)
    config.refuse("mlp_bias", False)
    rope = _rope(config, "full_attention")
    spec = ModelSpec(
        architecture=config.architecture,
        num_layers=config.count("num_hidden_layers", most=MAX_LAYERS),
        hidden_size=hidden,
        intermediate_size=config.count("intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=config.count("head_dim", hidden // heads, MAX_HEAD_DIM),
        vocab_size=config.count("vocab_size"),
        context_length=_context_length(config),
        rms_eps=config.positive("rms_norm_eps", 1e-6),
        rope_theta=config.positive("rope_theta", config.positive("rope_theta", 10000.0), rope),
        rope_interleaved=False,
        tied_embedding=bool(config.text.get("tie_word_embeddings", not has_head)),
        qkv_bias=bool(config.text.get("attention_bias", config.architecture == "qwen2")),
        qk_norm=config.architecture == "qwen3",
    )
    spec = replace(spec, rope_factors=_factors(config, rope, spec))
    if config.architecture == "gemma3":
        return _gemma3(config, spec)
    config.refuse("hidden_act", "silu")
    return replace(spec, windows=_windows(config, spec))


def _context_length(config: HfConfig) -> int:
    length = config.count("max_position_embeddings")
    if length > MAX_CONTEXT:
        raise ModelError(f"{config.name}: max_position_embeddings is {length}, above {MAX_CONTEXT}")
    return length


def _rope(config: HfConfig, layer_type: str) -> Mapping[str, Any]:
    """The rotation's parameters; the new style may have a set for each type of layer."""
    rope = config.text.get("rope_parameters") or config.text.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ModelError(f"{config.name}: the rope parameters in config.json are {rope!r}")
    chosen = rope.get(layer_type, rope)
    return chosen if isinstance(chosen, Mapping) else {}


def _factors(config: HfConfig, rope: Mapping[str, Any], spec: ModelSpec) -> tuple[float, ...]:
    """What each frequency is divided by. Raises `ModelError` for a kind that is not known."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    pairs = spec.head_dim // 2
    try:
        if kind == "default":
            return ()
        if kind == "linear":
            return (config.positive("factor", part=rope),) * pairs
        if kind == "llama3":
            factors = llama3_factors(rope, spec.rope_theta, spec.head_dim)
            if all(0 < factor < math.inf for factor in factors):
                return factors
            raise ValueError("they make factors that are not above 0")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelError(
            f"{config.name}: the {kind} rope parameters cannot be used: {error}"
        ) from error
    raise ModelError(f"{config.name}: rope scaling ({kind}) is not supported")


def llama3_factors(rope: Mapping[str, Any], theta: float, head_dim: int) -> tuple[float, ...]:
    """Llama 3.1's rule, as `rope_freqs.weight` has it in GGUF: frequencies with wave lengths far
    beyond the original context are slowed by `factor`, short ones kept, the rest blended."""
    factor, low, high = (
        float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    context = float(rope["original_max_position_embeddings"])
    factors = []
    for pair in range(head_dim // 2):
        turns = context * theta ** (-2 * pair / head_dim) / (2 * math.pi)
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(factors)


def _windows(config: HfConfig, spec: ModelSpec) -> tuple[int, ...]:
    """Per-layer windows of Mistral and Qwen 2; none when no context outgrows them."""
    if not config.text.get("use_sliding_window", True) or not config.text.get("sliding_window"):
        return ()
    window = config.number("sliding_window", int)
    if window >= spec.context_length:
        return ()
    kinds = config.text.get("layer_types")
    if kinds is None:
        first = config.number("max_window_layers", int, 0)
        return tuple(window if layer >= first else 0 for layer in range(spec.num_layers))
    return _by_kind(config, kinds, window, spec)


def _by_kind(config: HfConfig, kinds: object, window: int, spec: ModelSpec) -> tuple[int, ...]:
    sizes = {"full_attention": 0, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != spec.num_layers:
        raise ModelError(
            f"{config.name}: layer_types in config.json do not fit the layers: {kinds}"
        )
    if not all(isinstance(kind, str) and kind in sizes for kind in kinds):
        raise ModelError(f"{config.name}: layer_types in config.json are not supported: {kinds}")
    return tuple(sizes[kind] for kind in kinds)


def _gemma3(config: HfConfig, spec: ModelSpec) -> ModelSpec:
    config.refuse("hidden_activation", "gelu_pytorch_tanh")
    config.refuse("use_bidirectional_attention", False)
    window = config.count("sliding_window", 4096)
    local = config.positive("rope_theta", 10000.0, _rope(config, "sliding_attention"))
    local = config.positive("rope_local_base_freq", local)
    scalar = config.positive("query_pre_attn_scalar", float(spec.head_dim))
    scale = None if scalar == spec.head_dim else scalar**-0.5
    kinds = config.text.get("layer_types")
    if kinds is None:
        pattern = config.count("sliding_window_pattern", GEMMA3_PATTERN)
        windows = gemma3_windows(spec.num_layers, window, pattern)
    else:
        windows = _by_kind(config, kinds, window, spec)
    return gemma3_like(spec, windows, local, scale)
