"""Writing small model files of every family and container: GGUF whole or split, Hugging Face
folders in one file or shards, MLX folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from support.reference_decoder import Family

Tensors = dict[str, NDArray[Any]]

HF_ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
HF_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_PARTS = HF_PARTS | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A random model of one family; sizes are multiples of 32, so that it can be quantized."""

    architecture: str
    layers: int = 2
    hidden: int = 64
    mlp: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 96
    context: int = 128
    window: int = 0
    extra_metadata: Mapping[str, object] = field(default_factory=dict)
    extra_config: Mapping[str, object] = field(default_factory=dict)

    def family(self) -> Family:
        """As the reference decoder wants it: the constants of `metadata` and `config`."""
        local = [self.window and (layer + 1) % 6 != 0 for layer in range(self.layers)]
        gemma = self.architecture == "gemma3"
        return Family(
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            eps=1e-6,
            windows=[self.window if is_local else 0 for is_local in local],
            thetas=[10000.0 if gemma and is_local else 1e6 for is_local in local],
            interleaved=self.architecture == "llama",
            gelu=gemma,
            embedding_scale=self.hidden**0.5 if gemma else 1.0,
        )

    def metadata(self) -> dict[str, object]:
        keys: dict[str, object] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.hidden,
            "feed_forward_length": self.mlp,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        }
        if self.window:
            keys["attention.sliding_window"] = self.window
        return {f"{self.architecture}.{key}": value for key, value in keys.items()} | dict(
            self.extra_metadata
        )

    def config(self) -> dict[str, object]:
        """`config.json`."""
        types = {"gemma3": "gemma3_text"}
        keys: dict[str, object] = {
            "model_type": types.get(self.architecture, self.architecture),
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "tie_word_embeddings": True,
        }
        if self.architecture == "gemma3":
            keys |= {
                "sliding_window": self.window,
                "rope_local_base_freq": 10000.0,
                "hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": self.head_dim,
            }
        return keys | dict(self.extra_config)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (self.hidden,),
            "ffn_norm.weight": (self.hidden,),
            "attn_q.weight": (query, self.hidden),
            "attn_k.weight": (kv, self.hidden),
            "attn_v.weight": (kv, self.hidden),
            "attn_output.weight": (self.hidden, query),
            "ffn_gate.weight": (self.mlp, self.hidden),
            "ffn_up.weight": (self.mlp, self.hidden),
            "ffn_down.weight": (self.hidden, self.mlp),
        }
        if self.architecture == "qwen2":
            layer |= {"attn_q.bias": (query,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if self.architecture in ("qwen3", "gemma3"):
            layer |= {f"attn_{part}_norm.weight": (self.head_dim,) for part in "qk"}
        if self.architecture == "gemma3":
            layer |= {f"post_{part}_norm.weight": (self.hidden,) for part in ("attention", "ffw")}
        shapes = {
            "token_embd.weight": (self.vocab, self.hidden),
            "output_norm.weight": (self.hidden,),
        }
        for index in range(self.layers):
            shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
        return shapes

    def tensors(self, seed: int = 0) -> Tensors:
        """Float32 weights by GGUF's names; norm weights are around 1."""
        rng = np.random.default_rng(seed)
        found: Tensors = {}
        for name, shape in self.shapes().items():
            values = rng.standard_normal(shape)
            if "norm" in name:
                values = 1 + 0.2 * values
            elif len(shape) == 2:
                values = values * (0.3 if name == "token_embd.weight" else 1.5 / shape[1] ** 0.5)
            found[name] = values.astype(np.float32)
        return found


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, object],
    tensors: Mapping[str, NDArray[Any]],
    kinds: Mapping[str, Type] | None = None,
) -> Path:
    """Float tensors as they are; those named in `kinds` are bytes of that type already."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in metadata.items():
        add: Any = {
            bool: writer.add_bool,
            str: writer.add_string,
            float: writer.add_float32,
            int: writer.add_uint32,
            list: writer.add_array,
        }[type(value)]
        add(key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def hf_name(name: str, architecture: str) -> str:
    """GGUF's name of a tensor to Hugging Face's."""
    stem, _, kind = name.rpartition(".")
    if stem in HF_ENDS:
        return f"{HF_ENDS[stem]}.{kind}"
    _, layer, part = stem.split(".")
    parts = GEMMA_PARTS if architecture == "gemma3" else HF_PARTS
    return f"model.layers.{layer}.{parts[part]}.{kind}"


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """uint16 arrays are taken for bfloat16."""
    names = {"float32": "F32", "float16": "F16", "uint16": "BF16", "uint32": "U32", "int64": "I64"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": names[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(values.tobytes())
    return path


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Cut, not rounded: tests use values that have it exactly or read it back."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write_folder(
    folder: Path,
    config: Mapping[str, object],
    tensors: Mapping[str, NDArray[Any]],
    shards: Sequence[str] = (),
) -> Path:
    """A Hugging Face folder; with `shards`, tensors are dealt to files of these names in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if not shards:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    places = {name: shards[place % len(shards)] for place, name in enumerate(tensors)}
    for shard in shards:
        write_safetensors(
            folder / shard, {name: tensors[name] for name in tensors if places[name] == shard}
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def to_mlx(
    name: str, values: NDArray[np.float32], bits: int, group: int
) -> tuple[Tensors, NDArray[np.float32]]:
    """One matrix as MLX stores it, and the values that this stands for. `name` ends in .weight."""
    outputs, inputs = values.shape
    groups = values.reshape(outputs, inputs // group, group)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    scales = ((high - low) / (2**bits - 1)).astype(np.float16)
    biases = low.astype(np.float16)
    steps = scales.astype(np.float32)[..., None]
    start = biases.astype(np.float32)[..., None]
    levels = np.clip(np.rint((groups - start) / steps), 0, 2**bits - 1).astype(np.uint32)
    meant = (steps * levels.astype(np.float32) + start).reshape(outputs, inputs)
    words = np.zeros((outputs, inputs * bits // 32), dtype=np.uint32)
    per_word = 32 // bits
    flat = levels.reshape(outputs, -1)
    for place in range(per_word):
        words |= flat[:, place::per_word] << np.uint32(bits * place)
    stem = name.removesuffix(".weight")
    return {f"{stem}.weight": words, f"{stem}.scales": scales, f"{stem}.biases": biases}, meant
