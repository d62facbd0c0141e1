"""MLX's affine groups (mlx-community's 4- and 8-bit folders) -> the graph's forms, exactly.

A matrix `X` is stored as `X.weight`, 32-bit words of eight or four elements, `X.scales` and
`X.biases`, one of each for a group of inputs: `w = scale * q + bias` with q from zero up. That is
`scale * (q - zero) + (bias + zero * scale)`, and the elements lie in the words in the very order
that the graph wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import QuantizedWeight, Weight
from surefoot.loading.fidelity import finite
from surefoot.loading.hf.safetensors import StoredTensor
from surefoot.loading.hf.tensors import FloatTensors, as_float32, gguf_name
from surefoot.loading.tensors import Shape

GROUPS = (32, 64, 128)
BITS = (4, 8)

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Grouping:
    """`group` inputs share a scale; elements have `bits` bits."""

    group: int
    bits: int


def read_groupings(
    file: str, quantization: Mapping[str, object], architecture: str
) -> tuple[Grouping, dict[str, Grouping]]:
    """The usual grouping and those of single layers, by GGUF's names, from the `quantization`
    entry of `config.json`. Raises `ModelError` for other modes, sizes and bits than are known."""
    mode = quantization.get("mode", "affine")
    if mode != "affine":
        raise ModelError(f"{file}: MLX quantization of mode {mode!r} is not supported")
    usual = _grouping(file, quantization)
    single: dict[str, Grouping] = {}
    for layer, entry in quantization.items():
        name = gguf_name(f"{layer}.weight", architecture)
        if isinstance(entry, Mapping) and name is not None:
            single[name] = _grouping(file, {**quantization, **entry})
    return usual, single


def _grouping(file: str, entry: Mapping[str, object]) -> Grouping:
    group, bits = entry.get("group_size"), entry.get("bits")
    if group not in GROUPS or bits not in BITS:
        raise ModelError(
            f"{file}: MLX quantization to {bits} bits in groups of {group} is not supported; "
            f"supported: {' and '.join(map(str, BITS))} bits, groups of "
            f"{', '.join(map(str, GROUPS))}"
        )
    assert isinstance(group, int)
    assert isinstance(bits, int)
    return Grouping(group, bits)


class MlxTensors:
    """Tensors of an MLX folder by GGUF's names; those without scales are plain floats."""

    def __init__(
        self,
        file: str,
        tensors: Mapping[str, StoredTensor],
        usual: Grouping,
        single: Mapping[str, Grouping],
        *,
        norms_from_one: bool,
    ) -> None:
        self._file = file
        self._tensors = tensors
        stems = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
        self._matrices = {f"{stem}.weight": single.get(f"{stem}.weight", usual) for stem in stems}
        packed = {f"{stem}.{kind}" for stem in stems for kind in ("weight", "scales", "biases")}
        plain = {name: tensor for name, tensor in tensors.items() if name not in packed}
        self._floats = FloatTensors(file, plain, norms_from_one=norms_from_one)
        for name, grouping in self._matrices.items():
            _check(file, name, self._parts(name), grouping)

    def names(self) -> Iterable[str]:
        return [*self._matrices, *self._floats.names()]

    def shapes(self) -> dict[str, Shape]:
        matrices: dict[str, Shape] = {}
        for name, grouping in self._matrices.items():
            outputs, groups = self._parts(name)[1].raw.shape
            matrices[name] = (outputs, groups * grouping.group)
        return matrices | self._floats.shapes()

    def type_of(self, name: str) -> str:
        if name not in self._matrices:
            return self._floats.type_of(name)
        grouping = self._matrices[name]
        return f"MLX {grouping.bits} bits, groups of {grouping.group}"

    def load(self, name: str) -> Weight:
        """Raises `ModelError` for a tensor that holds NaN or infinity."""
        if name not in self._matrices:
            return self._floats.load(name)
        return finite(f"{self._file}: tensor {name}", lambda: self._matrix(name))

    def _matrix(self, name: str) -> Weight:
        grouping = self._matrices[name]
        words, scales, biases = self._parts(name)
        packed = np.ascontiguousarray(words.raw).view(np.uint8)
        zero = np.float32(2 ** (grouping.bits - 1))
        steps = as_float32(scales)
        offsets = as_float32(biases) + zero * steps
        packed = packed.reshape(*steps.shape, grouping.group * grouping.bits // 8)
        return QuantizedWeight(grouping.bits, packed, steps, offsets, grouping.group)

    def values(self, name: str) -> Floats:
        """`scale * q + bias`, element by element, as MLX dequantizes."""
        if name not in self._matrices:
            return self._floats.values(name)
        bits = self._matrices[name].bits
        words, scales, biases = self._parts(name)
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        elements = (np.ascontiguousarray(words.raw)[..., None] >> shifts) & np.uint32(2**bits - 1)
        steps = as_float32(scales)
        grouped = elements.reshape(*steps.shape, -1).astype(np.float32)
        values = steps[..., None] * grouped + as_float32(biases)[..., None]
        return values.reshape(len(steps), -1)

    def _parts(self, name: str) -> tuple[StoredTensor, StoredTensor, StoredTensor]:
        stem = name.removesuffix(".weight")
        words, scales, biases = (
            self._tensors.get(f"{stem}.{kind}") for kind in ("weight", "scales", "biases")
        )
        if words is None or scales is None or biases is None:
            raise ModelError(f"{self._file}: tensor {stem} has scales but not words and biases")
        return words, scales, biases


def _check(
    file: str,
    name: str,
    parts: tuple[StoredTensor, StoredTensor, StoredTensor],
    grouping: Grouping,
) -> None:
    words, scales, biases = parts
    shapes_agree = words.raw.ndim == scales.raw.ndim == 2 and scales.raw.shape == biases.raw.shape
    if words.dtype != "U32" or "U32" in (scales.dtype, biases.dtype) or not shapes_agree:
        raise ModelError(f"{file}: tensor {name} is no MLX matrix")
    outputs, groups = scales.raw.shape
    if words.raw.shape != (outputs, groups * grouping.group * grouping.bits // 32):
        raise ModelError(
            f"{file}: tensor {name} has words of shape {list(words.raw.shape)} for scales of "
            f"{list(scales.raw.shape)}: not {grouping.bits} bits in groups of {grouping.group}"
        )
