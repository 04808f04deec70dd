"""The integers, scales and minimums that GGUF's quantized types store.

The layouts are ggml's (ggml-common.h and ggml-quants.c): blocks of 32 or 256 columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.gguf_grids import GRID_TYPES
from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.matrix_format import INT1, INT2_64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Floats = NDArray[np.float32]


def decoded(type_name: str, rows: NDArray[np.uint8], columns: int) -> IntegerBlock:
    """Rows of stored bytes, uint8 (N, bytes of a row), as integers; the type is one of TYPES."""
    return TYPES[type_name](rows, columns)


def _f16(stored: Bytes) -> Floats:
    """(..., 2 n) bytes as (..., n) values."""
    return np.ascontiguousarray(stored).view(np.float16).astype(np.float32)


def _nibbles(stored: Bytes) -> Bytes:
    """(..., n) bytes as (..., 2 n): all the lower halves, then the upper ones."""
    *rows, count = stored.shape
    halves = np.empty((*rows, 2, count), np.uint8)
    stored = np.ascontiguousarray(stored)  # bytes between scales are short runs: slow
    np.bitwise_and(stored, 0x0F, out=halves[..., 0, :])
    np.right_shift(stored, 4, out=halves[..., 1, :])
    return halves.reshape(*rows, 2 * count)


def _bits(stored: Bytes, width: int) -> Bytes:
    """(..., n) bytes as (..., 8 / width, n): the lowest bits of every byte, then the next ones."""
    places = np.arange(0, 8, width, dtype=np.uint8)[:, np.newaxis]
    return np.asarray(stored[..., np.newaxis, :] >> places & np.uint8((1 << width) - 1))


def _of_32(five: bool, minimum: bool) -> Callable[[Bytes, int], IntegerBlock]:
    """Q4_0, Q4_1, Q5_0, Q5_1: d, the minimum, the fifth bits, the nibbles."""

    def decode(rows: Bytes, columns: int) -> IntegerBlock:
        blocks = rows.reshape(len(rows), columns // 32, -1)
        head = 4 if minimum else 2
        factors = _f16(blocks[..., :head])
        integers = _nibbles(blocks[..., -16:])
        if five:
            fifth = np.unpackbits(blocks[..., head : head + 4], axis=-1, bitorder="little")
            integers |= fifth << 4
        return IntegerBlock(
            integers=integers.reshape(len(rows), columns),
            scale=factors[..., 0],
            minimum=factors[..., 1] if minimum else None,
        )

    return decode


def _q8_0(rows: Bytes, columns: int) -> IntegerBlock:
    blocks = rows.reshape(len(rows), columns // 32, -1)
    integers = blocks[..., 2:].reshape(len(rows), columns).view(np.int8)
    return IntegerBlock(integers=integers, scale=_f16(blocks[..., :2])[..., 0], minimum=None)


def _q2_k(rows: Bytes, columns: int) -> IntegerBlock:
    """A byte for 16 columns, of the scale and the minimum; two bits, in halves; d, dmin."""
    blocks = rows.reshape(len(rows), columns // 256, -1)
    factors, nibbles = _f16(blocks[..., 80:]), blocks[..., :16, np.newaxis]
    integers = _bits(blocks[..., 16:80].reshape(*blocks.shape[:2], 2, 32), 2)
    multipliers = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=-1)
    return IntegerBlock(
        integers=integers.reshape(len(rows), columns),
        scale=factors[..., 0],
        minimum=-factors[..., 1],
        multipliers=multipliers.reshape(len(rows), -1, 2).view(np.int8),
    )


def _q3_k(rows: Bytes, columns: int) -> IntegerBlock:
    """The third bits; two bits, in halves; the scales of 6 bits, the lower four of each; d."""
    blocks = rows.reshape(len(rows), columns // 256, -1)
    shape = (*blocks.shape[:2], 256)
    low = _bits(blocks[..., 32:96].reshape(*shape[:2], 2, 32), 2).reshape(shape)
    high = _bits(blocks[..., :32], 1).reshape(shape)
    scales = (*blocks.shape[:2], 16)
    multipliers = _bits(blocks[..., 96:104], 4).reshape(scales)
    multipliers |= _bits(blocks[..., 104:108], 2).reshape(scales) << 4
    return IntegerBlock(
        integers=(low | high << 2).reshape(len(rows), columns),
        scale=_f16(blocks[..., 108:])[..., 0],
        minimum=None,
        multipliers=multipliers.reshape(len(rows), -1, 1).view(np.int8) - np.int8(32),
    )


def _of_256(five: bool) -> Callable[[Bytes, int], IntegerBlock]:
    """Q4_K, Q5_K: d, dmin, the scales and minimums of 6 bits, the fifth bits, the nibbles."""

    def decode(rows: Bytes, columns: int) -> IntegerBlock:
        blocks = rows.reshape(len(rows), columns // 256, -1)
        factors = _f16(blocks[..., :4])
        # Twelve bytes: of the first four scales and minimums six bits each, with two bits of each
        # of the last four above them; then four bits of each of the last four.
        first, second, rest = np.split(blocks[..., 4:16], 3, axis=-1)
        scale = np.concatenate([first & 63, rest & 0x0F | first >> 6 << 4], axis=-1)
        minimum = np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=-1)
        integers = _nibbles(blocks[..., -128:].reshape(*blocks.shape[:2], 4, 32))
        integers = integers.reshape(*blocks.shape[:2], 8, 32)
        if five:
            integers |= _bits(blocks[..., 16:48], 1) << 4
        return IntegerBlock(
            integers=integers.reshape(len(rows), columns),
            scale=factors[..., 0],
            minimum=-factors[..., 1],
            multipliers=np.stack([scale, minimum], -1).reshape(len(rows), -1, 2).view(np.int8),
        )

    return decode


def _q6_k(rows: Bytes, columns: int) -> IntegerBlock:
    """Four bits, two bits, the scales of 8 bits, d; in halves of 128 columns."""
    blocks = rows.reshape(len(rows), columns // 256, -1)
    halves = (*blocks.shape[:2], 2)
    low = _bits(blocks[..., :128].reshape(*halves, 64), 4).reshape(*halves, 128)
    high = _bits(blocks[..., 128:192].reshape(*halves, 32), 2).reshape(*halves, 128)
    return IntegerBlock(
        integers=(low | high << 4).reshape(len(rows), columns),
        scale=_f16(blocks[..., 208:])[..., 0],
        minimum=None,
        multipliers=blocks[..., 192:208].view(np.int8).reshape(len(rows), -1, 1),
    )


def _mxfp4(rows: Bytes, columns: int) -> IntegerBlock:
    """The exponent of a power of two, the nibbles: each numbers twice a value of E2M1."""
    blocks = rows.reshape(len(rows), columns // 32, -1)
    exponents = np.maximum(blocks[..., 0].astype(np.uint32), 1) - 1
    return IntegerBlock(
        integers=_nibbles(blocks[..., 1:]).reshape(len(rows), columns),
        scale=(exponents << 23).view(np.float32),
        minimum=None,
    )


def _nvfp4(rows: Bytes, columns: int) -> IntegerBlock:
    """Four scales E4M3 for 16 columns each; eight bytes with two numbers of each of 16 columns.

    The sign of a scale is ignored, and 0x7F stands for 0, as in ggml-impl.h.
    """
    blocks = rows.reshape(len(rows), columns // 64, -1)
    multipliers = np.where(blocks[..., :4] == 0x7F, 0, blocks[..., :4] & 0x7F).astype(np.uint8)
    integers = _nibbles(blocks[..., 4:].reshape(*blocks.shape[:2], 4, 8))
    return IntegerBlock(
        integers=integers.reshape(len(rows), columns),
        scale=np.full((len(rows), -(-columns // 256)), 0.5, np.float32),
        minimum=None,
        multipliers=multipliers.reshape(len(rows), -1, 1).view(np.int8),
    )


def _q1_0(rows: Bytes, columns: int) -> IntegerBlock:
    """d, a bit for each column: 1 or 3, less 2, times d."""
    blocks = rows.reshape(len(rows), columns // 128, -1)
    bits = np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little")
    integers = (bits << 1 | 1).reshape(len(rows), columns)
    return IntegerBlock(integers=integers, scale=_f16(blocks[..., :2])[..., 0], minimum=None)


def _q2_0(rows: Bytes, columns: int) -> IntegerBlock:
    """d, two bits for each column, neighbors in a byte: less 1, times d."""
    blocks = rows.reshape(len(rows), columns // 64, -1)
    integers = np.moveaxis(_bits(blocks[..., 2:], 2), -2, -1).reshape(len(rows), columns)
    return IntegerBlock(integers=integers, scale=_f16(blocks[..., :2])[..., 0], minimum=None)


def plain_values(type_name: str, rows: NDArray[np.uint8], columns: int) -> NDArray[np.float32]:
    """Rows of bytes of a type of NOT_IN_GGUF, uint8 (N, bytes of a row), as f32 (N, K)."""
    block, zero = decoded(type_name, rows, columns), NOT_IN_GGUF[type_name].zero
    scale = np.repeat(block.scale, columns // block.scale.shape[1], axis=1)
    return (block.integers.astype(np.float32) - zero) * scale


def _iq4_nl(rows: Bytes, columns: int) -> IntegerBlock:
    """d, the nibbles: each numbers a value."""
    blocks = rows.reshape(len(rows), columns // 32, -1)
    integers = _nibbles(blocks[..., 2:]).reshape(len(rows), columns)
    return IntegerBlock(integers=integers, scale=_f16(blocks[..., :2])[..., 0], minimum=None)


def _iq4_xs(rows: Bytes, columns: int) -> IntegerBlock:
    """d, the upper two bits and the lower four of the scales of 6 bits, the nibbles."""
    blocks = rows.reshape(len(rows), columns // 256, -1)
    groups = (*blocks.shape[:2], 8)
    stored = np.ascontiguousarray(blocks[..., 2:4]).view(np.uint16)
    high = stored >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = blocks[..., 4:8, np.newaxis] >> np.array([0, 4], np.uint8) & 15
    multipliers = (low.reshape(groups) | high << 4).astype(np.int8) - np.int8(32)
    integers = _nibbles(blocks[..., 8:].reshape(*groups, 16))
    return IntegerBlock(
        integers=integers.reshape(len(rows), columns),
        scale=_f16(blocks[..., :2])[..., 0],
        minimum=None,
        multipliers=multipliers.reshape(len(rows), -1, 1),
    )


# Types that the package gguf does not dequantize, and their formats.
NOT_IN_GGUF = {"Q1_0": INT1, "Q2_0": INT2_64}
TYPES: Mapping[str, Callable[[NDArray[np.uint8], int], IntegerBlock]] = {
    "Q4_0": _of_32(five=False, minimum=False),
    "Q4_1": _of_32(five=False, minimum=True),
    "Q5_0": _of_32(five=True, minimum=False),
    "Q5_1": _of_32(five=True, minimum=True),
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _of_256(five=False),
    "Q5_K": _of_256(five=True),
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
    **GRID_TYPES,
}
