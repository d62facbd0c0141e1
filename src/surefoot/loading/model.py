"""What every loader returns: a spec, lazily read weights, and what the files say about text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from surefoot.graph.spec import ModelSpec
from surefoot.loading.fidelity import TracedWeights


@dataclass(frozen=True, slots=True)
class TextFiles:
    """What a Hugging Face folder says about text: the vocabulary's file, the texts of the begin
    and end tokens, whether a prompt begins with the former (None: as the vocabulary's file says),
    further tokens that end a reply, the chat template's source."""

    tokenizer_json: Path
    bos_text: str | None
    eos_text: str | None
    add_bos: bool | None
    end_ids: tuple[int, ...]
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`name` is the file's or directory's base name, never a path. `metadata` is keyed by GGUF's
    names and empty for what is no GGUF file, which has `text` instead (None if its folder holds no
    `tokenizer.json`). `fingerprint` changes when the file, or how it is quantized, does.
    `tensor_types` maps a tensor's name to its type's name (`Q4_1`), `weight_bytes` is what the
    tensors take in the file."""

    name: str
    spec: ModelSpec
    weights: TracedWeights
    metadata: Mapping[str, object]
    fingerprint: str
    tensor_types: Mapping[str, str]
    weight_bytes: int
    text: TextFiles | None = None
