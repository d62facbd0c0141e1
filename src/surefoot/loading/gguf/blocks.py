"""GGUF's tensor types -> the graph's forms, without rounding a weight.

Every type here is `w = scale * (q - zero) + offset` with a scale that holds for a run of 32 or 16
inputs, which is what the graph computes: four bits where q needs no more, eight otherwise. Scales
and offsets of the K types are products of a half float and a six-bit integer: float32 holds them.
What remains is float32's own rounding, at most a few parts in ten million of the largest weight
of a block (`docs/model-formats.md` has the table; the tests compare with `gguf.dequantize`).

Knows bytes of tensors, nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from surefoot.graph.spec import BLOCK, DenseWeight, QuantizedWeight, Weight

Raw = NDArray[np.uint8]
Floats = NDArray[np.float32]

SUPER = 256
"""Elements of a K type's super-block (llama.cpp's QK_K)."""

SMALL_BLOCK = 16
"""Inputs that share a scale in Q2_K, Q3_K and Q6_K."""

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)
"""The code book of IQ4_NL and IQ4_XS (llama.cpp's `kvalues_iq4nl`)."""


def _rows_of_blocks(data: Raw, size: int) -> Raw:
    """`[out, bytes of a row] -> [out, blocks, size]`."""
    return data.reshape(data.shape[0], -1, size)


def _float16(raw: Raw) -> Floats:
    """Little-endian half floats at the last axis, as float32."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _shifted(raw: Raw, shifts: tuple[int, ...], mask: int) -> Raw:
    """`[..., bytes] -> [..., shifts, bytes]`: the same bytes at each shift, masked."""
    steps = np.array(shifts, dtype=np.uint8)[:, None]
    return (raw[..., None, :] >> steps) & np.uint8(mask)


def pack_nibbles(elements: Raw) -> Raw:
    """Four-bit elements in MatMulNBits' order: 2j in the low half of byte j, 2j + 1 above."""
    return elements[..., 0::2] | (elements[..., 1::2] << np.uint8(4))


def _four_bits(elements: Raw, scales: Floats, minimums: Floats | None, block: int) -> Weight:
    """`scales * q + minimums` as `scales * (q - 8) + (minimums + 8 * scales)`."""
    rows = len(elements)
    packed = pack_nibbles(elements.reshape(rows, -1, block))
    scales = scales.reshape(rows, -1)
    offsets = None if minimums is None else minimums.reshape(rows, -1) + 8 * scales
    return QuantizedWeight(4, packed, scales, offsets, block)


def _eight_bits(elements: NDArray[np.int8], scales: Floats, offsets: Floats | None,
                block: int) -> Weight:  # fmt: skip
    """`scales * q + offsets` for signed q."""
    rows = len(elements)
    packed = np.ascontiguousarray(elements).view(np.uint8).reshape(rows, -1, block)
    flat = None if offsets is None else offsets.reshape(rows, -1)
    return QuantizedWeight(8, packed ^ np.uint8(0x80), scales.reshape(rows, -1), flat, block)


def _nibbles(raw: Raw) -> Raw:
    """16 bytes -> 32 elements: the low halves, then the high ones."""
    return np.concatenate([raw & 0x0F, raw >> 4], axis=-1)


def _fifth_bits(raw: Raw) -> Raw:
    """Four bytes -> 32 elements of 0 or 16: bit j belongs to element j."""
    return np.unpackbits(raw, axis=-1, bitorder="little") << np.uint8(4)


def _q4_0(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 18)
    return _four_bits(_nibbles(blocks[..., 2:]), _float16(blocks[..., :2]), None, BLOCK)


def _q4_1(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 20)
    scales, minimums = _float16(blocks[..., :2]), _float16(blocks[..., 2:4])
    return _four_bits(_nibbles(blocks[..., 4:]), scales, minimums, BLOCK)


def _q5_0(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 22)
    elements = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return _eight_bits(elements.view(np.int8) - 16, _float16(blocks[..., :2]), None, BLOCK)


def _q5_1(data: Raw) -> Weight:
    """`d q + m` as `d (q - 16) + (m + 16 d)`: small integers lose least to 8-bit activations."""
    blocks = _rows_of_blocks(data, 24)
    elements = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    scales, minimums = _float16(blocks[..., :2]), _float16(blocks[..., 2:4])
    return _eight_bits(elements.view(np.int8) - 16, scales, minimums + 16 * scales, BLOCK)


def _q8_0(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, BLOCK + 2)
    return _eight_bits(blocks[..., 2:].view(np.int8), _float16(blocks[..., :2]), None, BLOCK)


def _q2_k(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 84)
    elements = _shifted(blocks[..., 16:80].reshape(*blocks.shape[:2], 2, 32), (0, 2, 4, 6), 3)
    scales = _float16(blocks[..., 80:82]) * (blocks[..., :16] & 0x0F)
    minimums = -_float16(blocks[..., 82:84]) * (blocks[..., :16] >> 4)
    return _four_bits(elements, scales, minimums, SMALL_BLOCK)


def _q3_k(data: Raw) -> Weight:
    """Elements -4 to 3: two low bits, and a high bit that takes four off where it is *not* set."""
    blocks = _rows_of_blocks(data, 110)
    lead = blocks.shape[:2]
    low = _shifted(blocks[..., 32:96].reshape(*lead, 2, 32), (0, 2, 4, 6), 3).reshape(*lead, 8, 32)
    high = _shifted(blocks[..., :32], tuple(range(8)), 1)
    elements = low + (high << 2) + np.uint8(4)
    packed = blocks[..., 96:108]
    fours = _shifted(packed[..., :8], (0, 4), 0x0F).reshape(*lead, 16)
    twos = _shifted(packed[..., 8:], (0, 2, 4, 6), 3).reshape(*lead, 16)
    six_bits = (fours | (twos << 4)).astype(np.float32) - 32
    return _four_bits(elements, _float16(blocks[..., 108:]) * six_bits, None, SMALL_BLOCK)


def _six_bit_pairs(packed: Raw) -> tuple[Raw, Raw]:
    """Twelve bytes -> eight scales and eight minimums (llama.cpp's `get_scale_min_k4`)."""
    first, second, third = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = [first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)]
    minimums = [second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)]
    return np.concatenate(scales, axis=-1), np.concatenate(minimums, axis=-1)


def _k_scales(blocks: Raw) -> tuple[Floats, Floats]:
    """Scales and minimums `[out, blocks, 8]` of Q4_K and Q5_K."""
    scales, minimums = _six_bit_pairs(blocks[..., 4:16])
    return _float16(blocks[..., :2]) * scales, -_float16(blocks[..., 2:4]) * minimums


def _q4_k(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 144)
    elements = _shifted(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32), (0, 4), 0x0F)
    return _four_bits(elements, *_k_scales(blocks), BLOCK)


def _q5_k(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 176)
    lead = blocks.shape[:2]
    low = _shifted(blocks[..., 48:].reshape(*lead, 4, 32), (0, 4), 0x0F).reshape(*lead, 8, 32)
    high = _shifted(blocks[..., 16:48], tuple(range(8)), 1)
    elements = (low | (high << 4)).view(np.int8) - 16
    scales, minimums = _k_scales(blocks)
    return _eight_bits(elements, scales, minimums + 16 * scales, BLOCK)


def _q6_k(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 210)
    lead = blocks.shape[:2]
    low = _shifted(blocks[..., :128].reshape(*lead, 2, 64), (0, 4), 0x0F)
    high = _shifted(blocks[..., 128:192].reshape(*lead, 2, 32), (0, 2, 4, 6), 3)
    elements = low.reshape(*lead, 8, 32) | (high.reshape(*lead, 8, 32) << 4)
    scales = _float16(blocks[..., 208:]) * np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    return _eight_bits(elements.view(np.int8) - 32, scales, None, SMALL_BLOCK)


def _iq4_nl(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 18)
    return _eight_bits(
        IQ4_VALUES[_nibbles(blocks[..., 2:])], _float16(blocks[..., :2]), None, BLOCK
    )


def _iq4_xs(data: Raw) -> Weight:
    blocks = _rows_of_blocks(data, 136)
    lead = blocks.shape[:2]
    low = _shifted(blocks[..., 4:8, None], (0, 4), 0x0F).reshape(*lead, 8)
    high = np.ascontiguousarray(blocks[..., 2:4]).view("<u2") >> np.arange(0, 16, 2)
    six_bits = (low | ((high & 3) << 4)).astype(np.float32) - 32
    elements = _shifted(blocks[..., 8:].reshape(*lead, 8, 16), (0, 4), 0x0F)
    return _eight_bits(IQ4_VALUES[elements], _float16(blocks[..., :2]) * six_bits, None, BLOCK)


def _f32(data: Floats) -> Weight:
    return DenseWeight(np.ascontiguousarray(data, dtype=np.float32))


def _f16(data: NDArray[np.float16]) -> Weight:
    return DenseWeight(data.astype(np.float32))


def _bf16(data: Raw) -> Weight:
    return DenseWeight(from_bfloat16(np.ascontiguousarray(data).view("<u2")))


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """A bfloat16 is the upper half of a float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


CONVERTERS: dict[Type, Callable[..., Weight]] = {
    Type.F32: _f32,
    Type.F16: _f16,
    Type.BF16: _bf16,
    Type.Q8_0: _q8_0,
    Type.Q4_0: _q4_0,
    Type.Q4_1: _q4_1,
    Type.Q5_0: _q5_0,
    Type.Q5_1: _q5_1,
    Type.Q2_K: _q2_k,
    Type.Q3_K: _q3_k,
    Type.Q4_K: _q4_k,
    Type.Q5_K: _q5_k,
    Type.Q6_K: _q6_k,
    Type.IQ4_NL: _iq4_nl,
    Type.IQ4_XS: _iq4_xs,
}
"""A tensor's bytes `[out, bytes of a row]` (floats `[out, in]` or `[n]`) to a weight, by type."""
