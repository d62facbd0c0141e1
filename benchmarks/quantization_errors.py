"""What each tensor type is computed as, and how far that is from what the file means.

    python benchmarks/quantization_errors.py

Prints the two tables of docs/model-formats.md. The first: every GGUF type over random blocks,
against `gguf.dequantize`; the error is the largest difference as a part of the largest value. The
second: Gaussian weights, which come as floats, as `--quantize` rounds them; errors are parts of
their root mean square and of the largest of them. Needs surefoot
installed; no model and no server.
"""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from numpy.typing import NDArray

from quantized_bytes import random_bytes
from surefoot.graph.spec import DenseWeight, Weight
from surefoot.loading.fidelity import dequantize, form_of, relative_error
from surefoot.loading.gguf.blocks import CONVERTERS
from surefoot.loading.quantizing import quantize_matrix

SHAPE = (640, 1024)
"""Elements of each type that are measured, outputs first."""
FLOAT32_ROUNDING = 2e-7
FLOATS = (Type.F32, Type.F16, Type.BF16)

TYPES_HEAD = """\
| type | bits in the file | computed as | bits in memory | error |
|---|---|---|---|---|"""
ROUNDED_HEAD = """\
| `--quantize` | computed as | bits in memory | root mean square error | largest error |
|---|---|---|---|---|"""


def bits_in_memory(weight: Weight) -> float:
    """Of one element, with its share of the scales and offsets."""
    if isinstance(weight, DenseWeight):
        return 8.0 * weight.values.itemsize
    offsets = 0 if weight.offsets is None else weight.offsets.nbytes
    size = weight.packed.nbytes + weight.scales.nbytes + offsets
    return 8.0 * size / float(np.prod(weight.shape))


def type_row(kind: Type) -> str:
    elements, size = GGML_QUANT_SIZES[kind]
    data = float_data(kind) if kind in FLOATS else random_bytes(kind, SHAPE)
    weight = CONVERTERS[kind](data)
    error = relative_error(dequantize(weight), gguf.dequantize(data, kind))
    cells = (
        kind.name,
        f"{8 * size / elements:.3g}",
        form_of(weight),
        f"{bits_in_memory(weight):g}",
        said(error),
    )
    return f"| {' | '.join(cells)} |"


def said(error: float) -> str:
    """How much of float32's own rounding there is depends on the elements drawn."""
    if 0 < error < FLOAT32_ROUNDING:
        return f"below {FLOAT32_ROUNDING:.0e}"
    return f"{error:.0e}" if error else "0"


def float_data(kind: Type) -> NDArray[np.generic]:
    data = gguf.quantize(gaussian(), kind)
    return data.view(np.float16) if kind == Type.F16 else data


def gaussian() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def rounded_row(name: str, bits: int) -> str:
    values = gaussian()
    weight = quantize_matrix(values, bits)
    difference = dequantize(weight) - values
    rms = float(np.sqrt((difference**2).mean() / (values**2).mean()))
    cells = (
        f"`{name}`",
        form_of(weight),
        f"{bits_in_memory(weight):g}",
        f"{rms:.2g}",
        f"{relative_error(dequantize(weight), values):.2g}",
    )
    return f"| {' | '.join(cells)} |"


def lines() -> Iterator[str]:
    yield from TYPES_HEAD.splitlines()
    for kind in sorted(CONVERTERS, key=lambda kind: (kind not in FLOATS, kind.name)):
        yield type_row(kind)
    yield ""
    yield from ROUNDED_HEAD.splitlines()
    yield rounded_row("q8", 8)
    yield rounded_row("q4", 4)


if __name__ == "__main__":
    for line in lines():
        print(line)
