"""What became of a model's weights on their way to the graph, measured on the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, Weight, WeightSource

Floats = NDArray[np.float32]


class TracedWeights(WeightSource, Protocol):
    """Weights whose values in the file can be asked for beside what is made of them."""

    def type_of(self, name: str) -> str:
        """The tensor's type as the file has it: "Q4_K", "BF16"."""
        ...

    def values(self, name: str) -> Floats:
        """The tensor as the file means it, dequantized without the graph's forms."""
        ...


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The matrices or the vectors of one type: how many there are, in which form they are computed,
    and the largest difference between that form and the file's values, as a part of the largest
    value. Measured on one of them (`sample`)."""

    type_name: str
    num_tensors: int
    form: str
    error: float
    sample: str


def measure(weights: TracedWeights, names: Iterable[str]) -> list[Fidelity]:
    """One entry for the matrices and one for the vectors of each type, most tensors first."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        is_vector = name.endswith(("norm.weight", ".bias"))
        groups.setdefault((weights.type_of(name), is_vector), []).append(name)
    found = []
    for (kind, _), members in groups.items():
        sample = min(members)
        weight = weights.load(sample)
        error = relative_error(dequantize(weight), weights.values(sample))
        found.append(Fidelity(kind, len(members), form_of(weight), error, sample))
    return sorted(found, key=lambda entry: (-entry.num_tensors, entry.type_name))


def form_of(weight: Weight) -> str:
    """ "4 bits, blocks of 32, offsets"."""
    if isinstance(weight, DenseWeight):
        return "float32"
    offsets = "" if weight.offsets is None else ", offsets"
    return f"{weight.bits} bits, blocks of {weight.block}{offsets}"


def dequantize(weight: Weight) -> Floats:
    """`[out, in]` (or `[n]`) as the graph computes with it."""
    if isinstance(weight, DenseWeight):
        return weight.values
    packed = weight.packed
    if weight.bits == 4:
        packed = np.stack([packed & 0x0F, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    centred = packed.astype(np.float32) - np.float32(2 ** (weight.bits - 1))
    values = centred * weight.scales[..., None]
    if weight.offsets is not None:
        values += weight.offsets[..., None]
    flat: Floats = values.reshape(weight.shape)
    return flat


def finite(tensor: str, convert: Callable[[], Weight]) -> Weight:
    """What `convert` makes. Raises `ModelError` if it holds NaN or infinity, which 8-bit
    activations would turn into numbers that look like any other. `tensor`: its file and name."""
    with np.errstate(invalid="ignore", over="ignore"):  # refused, not warned of
        weight = convert()
    if not is_finite(weight):
        raise ModelError(f"{tensor} holds values that are not finite")
    return weight


def is_finite(weight: Weight) -> bool:
    """No NaN and no infinity in it."""
    if isinstance(weight, DenseWeight):
        return bool(np.isfinite(weight.values).all())
    offsets_are = weight.offsets is None or bool(np.isfinite(weight.offsets).all())
    return offsets_are and bool(np.isfinite(weight.scales).all())


def relative_error(found: Floats, wanted: Floats) -> float:
    """The largest difference as a part of the largest wanted value."""
    largest = float(np.abs(wanted).max(initial=0.0))
    return float(np.abs(found - wanted).max(initial=0.0)) / (largest or 1.0)
