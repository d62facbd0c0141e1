"""Tiny random Llamas as GGUF files, engines over them, and what they compute by plain numpy.

The numpy forward shares no code with surefoot: the weights are read back by the `gguf` package's
own dequantization, `reference_decoder` computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from support.reference_decoder import Family, reference_logits
from support.tiny_text import tiny_metadata
from surefoot.config import EngineConfig
from surefoot.engine.engine import Engine
from surefoot.loading.gguf.model import load_gguf

TEXT_VOCAB = len(tiny_metadata()["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
"""Vocabulary of the models that carry `tiny_text`'s tokenizer."""

LINEAR_TYPES = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes and constants of a tiny Llama, as its metadata states them."""

    vocab: int = 256
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    mlp: int = 96
    context: int = 1024
    rms_eps: float = 1e-5
    rope_theta: float = 10000.0

    def metadata(self) -> dict[str, object]:
        return {
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.hidden,
            "llama.feed_forward_length": self.mlp,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.key_length": self.head_dim,
            "llama.attention.layer_norm_rms_epsilon": self.rms_eps,
            "llama.rope.freq_base": self.rope_theta,
            "llama.rope.dimension_count": self.head_dim,
        }

    def tensor_shapes(self, tied: bool) -> dict[str, tuple[int, ...]]:
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab, self.hidden),
            "output_norm.weight": (self.hidden,),
        }
        if not tied:
            shapes["output.weight"] = (self.vocab, self.hidden)
        for layer in range(self.layers):
            block = f"blk.{layer}"
            shapes |= {
                f"{block}.attn_norm.weight": (self.hidden,),
                f"{block}.attn_q.weight": (query, self.hidden),
                f"{block}.attn_k.weight": (kv, self.hidden),
                f"{block}.attn_v.weight": (kv, self.hidden),
                f"{block}.attn_output.weight": (self.hidden, query),
                f"{block}.ffn_norm.weight": (self.hidden,),
                f"{block}.ffn_gate.weight": (self.mlp, self.hidden),
                f"{block}.ffn_up.weight": (self.mlp, self.hidden),
                f"{block}.ffn_down.weight": (self.hidden, self.mlp),
            }
        return shapes


def random_tensors(shape: TinyShape, *, tied: bool, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Weights whose logits spread over several units, so that most argmaxes are clear."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, NDArray[Any]] = {}
    for name, dims in shape.tensor_shapes(tied).items():
        if len(dims) == 1:
            values = 1 + 0.2 * rng.standard_normal(dims)
        else:
            gain = {"token_embd.weight": 0.3, "output.weight": 0.3}.get(
                name, 1.5 / np.sqrt(dims[1])
            )
            values = gain * rng.standard_normal(dims)
        tensors[name] = values.astype(np.float32)
    return tensors


def write_gguf(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, NDArray[Any]],
    kind_of: Callable[[str], Type],
    *,
    architecture: str = "llama",
) -> Path:
    """A GGUF file of these values; matrices are stored as `kind_of(name)` says, vectors as F32
    unless it says otherwise."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        add = {
            bool: writer.add_bool,
            str: writer.add_string,
            float: writer.add_float32,
            int: writer.add_uint32,
            list: writer.add_array,
        }[type(value)]
        add(key, value)  # type: ignore[operator]
    for name, values in tensors.items():
        kind = kind_of(name)
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True, slots=True)
class TinyModel:
    """How to make one: `linear` stores the projections, `embedding` the two ends (None: alike)."""

    linear: Type = Type.F32
    embedding: Type | None = None
    tied: bool = False
    seed: int = 0
    shape: TinyShape = TinyShape()
    with_tokenizer: bool = False

    def kind_of(self, name: str) -> Type:
        if "norm" in name:
            return Type.F32
        ends = name in ("token_embd.weight", "output.weight")
        return self.embedding if ends and self.embedding is not None else self.linear

    def metadata(self) -> dict[str, object]:
        text = tiny_metadata() if self.with_tokenizer else {}
        return self.shape.metadata() | text

    def tensors(self) -> dict[str, NDArray[Any]]:
        return random_tensors(self.shape, tied=self.tied, seed=self.seed)

    def write(self, path: Path) -> Path:
        return write_gguf(path, self.metadata(), self.tensors(), self.kind_of)


def text_model(linear: Type = Type.Q4_1, **changes: Any) -> TinyModel:
    """A model with a byte-level tokenizer and a chat template, for tests from end to end."""
    shape = TinyShape(vocab=TEXT_VOCAB)
    return TinyModel(linear=linear, tied=True, shape=shape, with_tokenizer=True, **changes)


def dequantized(path: Path) -> dict[str, NDArray[np.float64]]:
    """Every tensor of the file as the `gguf` package reads it."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        for tensor in gguf.GGUFReader(path).tensors
    }


def numpy_logits(path: Path, shape: TinyShape, ids: Sequence[int]) -> NDArray[np.float64]:
    """`[len(ids), vocab]`: the output after each token, in float64."""
    family = Family(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        eps=shape.rms_eps,
        windows=(0,) * shape.layers,
        thetas=(shape.rope_theta,) * shape.layers,
        interleaved=True,
    )
    return reference_logits(family, dequantized(path), ids)


def open_engine(path: Path, graphs: Path, **config: Any) -> Engine:
    """An engine over a GGUF file, one short window unless `config` says otherwise."""
    settings = EngineConfig(**{"num_windows": 1, "capacity": 512, **config})
    model = load_gguf(path)
    return Engine(model.spec, model.weights, model.fingerprint, graphs, settings)
