"""Tables of cosines and sines -> the base and factors of a model's rotation.

ONNX files hold the tables only. Position 1 gives each frequency to about 1e-7; positions 2, 4, 8,
... give it ever more sharply, each told from its neighbours by the one before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.onnx.file import OnnxGraph
from surefoot.loading.onnx.weights import as_floats

Doubles = NDArray[np.float64]

RELATIVE = 2e-6
"""How far a frequency may be from `theta ** -e` and still be meant as that: the builder computes
in float32."""
FLOOR, PER_RADIAN = 1e-5, 4e-7
"""How far a stored table may be from ours: rounding, and the error of a float32 angle, which grows
with the position (the largest seen is 2.4e-7 a radian)."""


def read_rotation(spec: ModelSpec, graph: OnnxGraph, cosines: str, sines: str) -> ModelSpec:
    """The spec with base, factors and a context within the tables. Raises `ModelError` for tables
    that are no rotation."""
    cos, sin = (
        as_floats(graph.type_of(name), graph.array(name)).astype(np.float64)
        for name in (cosines, sines)
    )
    if cos.shape != sin.shape or cos.ndim != 2 or cos.shape[1] != spec.head_dim // 2:
        raise ModelError(
            f"{graph.file}: {cosines} has shape {list(cos.shape)}, not half of {spec.head_dim} "
            "columns: partial rotation is not supported"
        )
    if not (np.isfinite(cos).all() and np.isfinite(sin).all()):
        raise ModelError(f"{graph.file}: {cosines} or {sines} holds values that are not finite")
    context = min(spec.context_length, len(cos))
    if context < 2:
        raise ModelError(f"{graph.file}: {cosines} has {len(cos)} positions")
    frequencies = measured_frequencies(cos[:context], sin[:context])
    angles = np.outer(np.arange(context), frequencies)
    error = np.maximum(
        np.abs(np.cos(angles) - cos[:context]), np.abs(np.sin(angles) - sin[:context])
    )
    within = (error <= FLOOR + PER_RADIAN * angles).all() and (frequencies > 0).all()
    if not within:
        raise ModelError(f"{graph.file}: {cosines} and {sines} are no plain rotation")
    theta, factors = base_and_factors(frequencies)
    return replace(spec, context_length=context, rope_theta=theta, rope_factors=factors)


def measured_frequencies(cos: Doubles, sin: Doubles) -> Doubles:
    """Radians a position, one a column."""
    frequencies: Doubles = np.arctan2(sin[1], cos[1])
    position = 2
    while position < len(cos):
        angle = np.arctan2(sin[position], cos[position])
        off = angle - position * frequencies
        frequencies = frequencies + (off - 2 * np.pi * np.round(off / (2 * np.pi))) / position
        position *= 2
    return frequencies


def base_and_factors(frequencies: Doubles) -> tuple[float, tuple[float, ...]]:
    """The base that gives them, or a base that gives the fast ones and what the others are
    divided by (Llama 3's scaling leaves the fast ones as they are)."""
    pairs = len(frequencies)
    exponents = np.arange(pairs) / pairs
    if pairs == 1:
        return 1.0, () if abs(frequencies[0] - 1) < RELATIVE else (float(1 / frequencies[0]),)
    for column in (pairs - 1, 1):
        theta = _rounded(float(frequencies[column] ** (-1 / exponents[column])))
        ratios = theta**-exponents / frequencies
        if (np.abs(ratios - 1) < RELATIVE).all():
            return theta, ()
    return theta, tuple(float(ratio) for ratio in ratios)


def _rounded(theta: float) -> float:
    """Bases are round numbers (10,000, 500,000, ...): the one with the fewest digits that is as
    near as a measurement can tell."""
    for digits in range(1, 8):
        near = float(f"{theta:.{digits}g}")
        if abs(near / theta - 1) < RELATIVE:
            return near
    return theta
