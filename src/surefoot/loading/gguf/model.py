"""GGUF files -> ModelSpec and weights, exactly: no value is rounded that the graph can hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import ReaderTensor
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, Weight
from surefoot.loading.fidelity import finite
from surefoot.loading.gguf.blocks import CONVERTERS
from surefoot.loading.gguf.parts import open_parts
from surefoot.loading.gguf.reader import GgufFile
from surefoot.loading.gguf.spec import read_spec
from surefoot.loading.model import LoadedModel
from surefoot.loading.tensors import Shape, check_tensors

FLOATS = (Type.F32, Type.F16, Type.BF16)

ROPE_FREQS = "rope_freqs.weight"
"""Divisors of the rotation's frequencies (Llama 3): part of the spec, not of the weights."""


def load_gguf(path: Path) -> LoadedModel:
    """Open a GGUF file, or all parts of a split one. Tensor bytes stay in the file until they are
    asked for.

    Raises `ModelError`, one line with the file's name: not a GGUF file, truncated, a part
    missing, metadata missing, an architecture or a tensor type that is not supported, a tensor
    that is missing or that the architecture has not.
    """
    files = open_parts(path)
    weights = GgufWeights(path.name, files)
    shapes = weights.shapes()
    if "token_embd.weight" not in shapes:
        raise ModelError(f"{path.name}: tensor token_embd.weight is missing")
    vocab_size = next(iter(shapes["token_embd.weight"]), 0)
    metadata = files[0].metadata
    spec = read_spec(path.name, metadata, vocab_size, shapes, weights.rope_freqs())
    check_tensors(path.name, spec, shapes, weights.file_of)
    return LoadedModel(
        name=path.name,
        spec=spec,
        weights=weights,
        metadata=metadata,
        fingerprint=_fingerprint(files, path),
        tensor_types={name: weights.type_of(name) for name in shapes},
        weight_bytes=sum(int(tensor.n_bytes) for file in files for tensor in file.tensors),
    )


class GgufWeights:
    """The tensors of one model, converted when loaded. Raises `ModelError` for a vector that is
    not stored as floats."""

    def __init__(self, model: str, files: Sequence[GgufFile]) -> None:
        self._model = model
        self._tensors = {tensor.name: tensor for file in files for tensor in file.tensors}
        self._files = {tensor.name: file.name for file in files for tensor in file.tensors}
        for name, tensor in self._tensors.items():
            if len(tensor.shape) == 1 and tensor.tensor_type not in FLOATS:
                raise ModelError(
                    f"{self.file_of(name)}: tensor {name} is a vector of type "
                    f"{tensor.tensor_type.name}; "
                    f"vectors are {', '.join(kind.name for kind in FLOATS)}"
                )

    def file_of(self, name: str) -> str:
        """The name of the file, a part it may be, that holds the tensor."""
        return self._files.get(name, self._model)

    def names(self) -> Iterable[str]:
        return [name for name in self._tensors if name != ROPE_FREQS]

    def shapes(self) -> dict[str, Shape]:
        """Outputs first; the file has it the other way round."""
        return {
            name: tuple(int(size) for size in reversed(self._tensors[name].shape))
            for name in self.names()
        }

    def load(self, name: str) -> Weight:
        """Raises `ModelError` for a tensor that is missing or holds NaN or infinity."""
        tensor = self._get(name)
        convert = CONVERTERS[tensor.tensor_type]
        return finite(f"{self.file_of(name)}: tensor {name}", lambda: convert(tensor.data))

    def type_of(self, name: str) -> str:
        return Type(self._get(name).tensor_type).name

    def values(self, name: str) -> NDArray[np.float32]:
        """As the `gguf` package reads it."""
        tensor = self._get(name)
        values: NDArray[np.float32] = gguf.dequantize(tensor.data, tensor.tensor_type)
        return values

    def rope_freqs(self) -> tuple[float, ...]:
        if ROPE_FREQS not in self._tensors:
            return ()
        weight = self.load(ROPE_FREQS)
        if not isinstance(weight, DenseWeight) or weight.values.ndim != 1:
            raise ModelError(
                f"{self.file_of(ROPE_FREQS)}: tensor {ROPE_FREQS} is no vector of floats"
            )
        return tuple(float(value) for value in weight.values)

    def _get(self, name: str) -> ReaderTensor:
        if name not in self._tensors:
            raise ModelError(f"{self._model}: tensor {name} is missing")
        return self._tensors[name]


def _fingerprint(files: Sequence[GgufFile], path: Path) -> str:
    """Header bytes, size and modification time: cheap, and different when the file is."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        stat = path.with_name(file.name).stat()
        digest.update(file.data[: file.data_offset].tobytes())
        digest.update(f"{stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()
