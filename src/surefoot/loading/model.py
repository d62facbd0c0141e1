"""What every loader returns: a spec, lazily read weights, and the file's own metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surefoot.graph.spec import ModelSpec, WeightSource


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`name` is the file's or directory's base name, never a path. `metadata` is keyed by GGUF's
    names. `fingerprint` changes when the file does. `tensor_types` maps a tensor's name to its
    type's name (`Q4_1`), `weight_bytes` is what the tensors take in the file."""

    name: str
    spec: ModelSpec
    weights: WeightSource
    metadata: Mapping[str, object]
    fingerprint: str
    tensor_types: Mapping[str, str]
    weight_bytes: int
