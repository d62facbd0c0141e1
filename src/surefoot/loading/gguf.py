"""GGUF -> ModelSpec and weights, exactly: no value is rounded that the graph can hold as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec, Weight
from surefoot.loading.gguf_blocks import CONVERTERS
from surefoot.loading.gguf_reader import GgufFile
from surefoot.loading.model import LoadedModel

ARCHITECTURES = ("llama",)

T = TypeVar("T", int, float, str)


def load_gguf(path: Path) -> LoadedModel:
    """Open a GGUF file. Tensor bytes stay in the file until they are asked for.

    Raises `ModelError`, one line with the file's name: not a GGUF file, truncated, metadata
    missing, an architecture or a tensor type that is not supported, a tensor that is missing.
    """
    file = GgufFile(path)
    spec = _read_spec(file)
    weights = GgufWeights(file)
    weights.check(spec)
    return LoadedModel(
        name=path.name,
        spec=spec,
        weights=weights,
        metadata=file.metadata,
        fingerprint=_fingerprint(file, path),
        tensor_types={tensor.name: tensor.tensor_type.name for tensor in file.tensors},
        weight_bytes=sum(int(tensor.n_bytes) for tensor in file.tensors),
    )


class GgufWeights:
    """The tensors of one open file, converted when loaded."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file.name
        self._tensors = {tensor.name: tensor for tensor in file.tensors}

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def load(self, name: str) -> Weight:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError(f"{self._file}: tensor {name} is missing")
        return CONVERTERS[tensor.tensor_type](tensor.data)

    def check(self, spec: ModelSpec) -> None:
        """Every tensor the graph needs is there, of a supported type and the right shape."""
        for name, tensor in self._tensors.items():
            if tensor.tensor_type not in CONVERTERS:
                known = ", ".join(kind.name for kind in CONVERTERS)
                raise ModelError(
                    f"{self._file}: tensor {name} has type {tensor.tensor_type.name}, "
                    f"which is not supported; supported types: {known}"
                )
        for name, shape in _expected_shapes(spec).items():
            if name not in self._tensors:
                raise ModelError(f"{self._file}: tensor {name} is missing")
            found = tuple(int(dim) for dim in reversed(self._tensors[name].shape))
            if found != shape:
                raise ModelError(
                    f"{self._file}: tensor {name} has shape {list(found)}, "
                    f"the metadata calls for {list(shape)}"
                )


def _expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    hidden, mlp = spec.hidden_size, spec.intermediate_size
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (spec.vocab_size, hidden),
        "output_norm.weight": (hidden,),
    }
    if not spec.tied_embedding:
        shapes["output.weight"] = (spec.vocab_size, hidden)
    for layer in range(spec.num_layers):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (hidden,),
            f"blk.{layer}.attn_q.weight": (query, hidden),
            f"blk.{layer}.attn_k.weight": (kv, hidden),
            f"blk.{layer}.attn_v.weight": (kv, hidden),
            f"blk.{layer}.attn_output.weight": (hidden, query),
            f"blk.{layer}.ffn_norm.weight": (hidden,),
            f"blk.{layer}.ffn_gate.weight": (mlp, hidden),
            f"blk.{layer}.ffn_up.weight": (mlp, hidden),
            f"blk.{layer}.ffn_down.weight": (hidden, mlp),
        }
    return shapes


def _read_spec(file: GgufFile) -> ModelSpec:
    fields = _Fields(file.name, file.metadata)
    arch = fields.get("general.architecture", str)
    if arch not in ARCHITECTURES:
        raise ModelError(
            f"{file.name}: architecture {arch!r} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}"
        )
    _refuse_rope_scaling(file, arch)
    heads = fields.get(f"{arch}.attention.head_count", int)
    hidden = fields.get(f"{arch}.embedding_length", int)
    if heads < 1 or hidden < 1:
        raise ModelError(f"{file.name}: {arch} has {heads} heads and hidden size {hidden}")
    head_dim = fields.get(f"{arch}.attention.key_length", int, hidden // heads)
    rotated = fields.get(f"{arch}.rope.dimension_count", int, head_dim)
    if rotated != head_dim:
        raise ModelError(
            f"{file.name}: {arch}.rope.dimension_count is {rotated}, only the whole head "
            f"({head_dim}) can be rotated"
        )
    names = {tensor.name: tensor for tensor in file.tensors}
    if "token_embd.weight" not in names:
        raise ModelError(f"{file.name}: tensor token_embd.weight is missing")
    return ModelSpec(
        architecture=arch,
        num_layers=fields.get(f"{arch}.block_count", int),
        hidden_size=hidden,
        intermediate_size=fields.get(f"{arch}.feed_forward_length", int),
        num_heads=heads,
        num_kv_heads=fields.get(f"{arch}.attention.head_count_kv", int, heads),
        head_dim=head_dim,
        vocab_size=int(names["token_embd.weight"].shape[1]),
        context_length=fields.get(f"{arch}.context_length", int),
        rms_eps=fields.get(f"{arch}.attention.layer_norm_rms_epsilon", float),
        rope_theta=fields.get(f"{arch}.rope.freq_base", float, 10000.0),
        rope_interleaved=True,
        tied_embedding="output.weight" not in names,
    )


def _refuse_rope_scaling(file: GgufFile, arch: str) -> None:
    """Scaled rotations would be read wrongly, so they are refused, never ignored."""
    kind = file.metadata.get(f"{arch}.rope.scaling.type", "none")
    scaled = any(tensor.name == "rope_freqs.weight" for tensor in file.tensors)
    if kind != "none" or scaled:
        raise ModelError(f"{file.name}: rope scaling ({kind}) is not supported")


class _Fields:
    """Typed look-ups in the metadata, with the file's name in every complaint."""

    def __init__(self, file: str, metadata: Mapping[str, object]) -> None:
        self._file = file
        self._metadata = metadata

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        value = self._metadata.get(key, default)
        if value is None:
            raise ModelError(f"{self._file}: metadata {key} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return kind(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ModelError(f"{self._file}: metadata {key} is {value!r}, not {kind.__name__}")
        return value


def _fingerprint(file: GgufFile, path: Path) -> str:
    """Header bytes, size and modification time: cheap, and different when the file is."""
    stat = path.stat()
    digest = hashlib.blake2b(file.data[: file.data_offset].tobytes(), digest_size=16)
    digest.update(f"{stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()
