"""The integers and scales of GGUF's types whose columns are entries of a grid, and of ternary ones.

A block of 256 columns has an f16 d, integers of a few bits that multiply it, and indices into a
grid of ggml-common.h. `gguf` knows the grids: it dequantizes a copy of a block whose d is 1 and
whose other scales are the smallest, which leaves the entries of the grid with their signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.matrix_format import FORMATS
from hearthd.models.dsl.matrix_packing import numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

_UNIT = np.array([1], np.float16).view(np.uint8)


def _entries(type_name: str, blocks: Bytes) -> NDArray[np.float32]:
    """The values of blocks (N, K / 256, bytes): f32 (N, K)."""
    type_ = gguf.GGMLQuantizationType[type_name]
    values: NDArray[np.float32] = gguf.quants.dequantize(blocks.reshape(len(blocks), -1), type_)
    return values


def _block(type_name: str, blocks: Bytes, d: Bytes, scales: NDArray[Any]) -> IntegerBlock:
    """Blocks whose scales are 1: those are d (N, K / 256, 2) times 2 s + 1, for s of each group."""
    matrix_format = FORMATS[type_name.lower().replace("_", "-")]
    entries = _entries(type_name, blocks) * np.float32(matrix_format.steps)
    groups = entries.shape[1] // matrix_format.columns
    multipliers = (2 * scales + 1).astype(np.int8).reshape(len(blocks), -1, 1)
    return IntegerBlock(
        integers=numbers_of(matrix_format, entries.astype(np.int8)),
        scale=np.ascontiguousarray(d).view(np.float16).astype(np.float32)[..., 0],
        minimum=None,
        multipliers=np.repeat(multipliers, groups // multipliers.shape[1], axis=1),
    )


def _nibbles(stored: Bytes) -> Bytes:
    """(..., n) bytes as (..., 2 n), the lower half of each first."""
    return np.stack([stored & 0x0F, stored >> 4], axis=-1).reshape(*stored.shape[:-1], -1)


def _scales_in_words(
    type_name: str, words: Callable[[Bytes], NDArray[np.uint32]]
) -> Callable[[Bytes, int], IntegerBlock]:
    """IQ2_XXS, IQ3_XXS: the upper four bits of a word of 32 bits are a scale, the others signs."""

    def decode(rows: Bytes, columns: int) -> IntegerBlock:
        blocks = rows.reshape(len(rows), columns // 256, -1).copy()
        d = blocks[..., :2].copy()
        blocks[..., :2] = _UNIT
        signs = words(blocks)
        scales = signs >> 28
        signs &= np.uint32((1 << 28) - 1)
        return _block(type_name, blocks, d, scales)

    return decode


def _scales_in_nibbles(type_name: str, count: int) -> Callable[[Bytes, int], IntegerBlock]:
    """IQ2_XS, IQ2_S, IQ3_S: the last `count` bytes are two scales each."""

    def decode(rows: Bytes, columns: int) -> IntegerBlock:
        blocks = rows.reshape(len(rows), columns // 256, -1).copy()
        d, scales = blocks[..., :2].copy(), _nibbles(blocks[..., -count:])
        blocks[..., :2], blocks[..., -count:] = _UNIT, 0
        return _block(type_name, blocks, d, scales)

    return decode


def _iq1_s(rows: Bytes, columns: int) -> IntegerBlock:
    """Bits 12 to 14 of each of eight words of 16 bits are a scale."""
    blocks = rows.reshape(len(rows), columns // 256, -1).copy()
    d = blocks[..., :2].copy()
    blocks[..., :2] = _UNIT
    words = blocks[..., 34:].view(np.uint16)
    scales = words >> 12 & 7
    words &= np.uint16(0x8FFF)
    return _block("IQ1_S", blocks, d, scales)


def _iq1_m(rows: Bytes, columns: int) -> IntegerBlock:
    """Four words of 16 bits have four scales of three bits each, and four bits of d."""
    blocks = rows.reshape(len(rows), columns // 256, -1).copy()
    words = blocks[..., 48:].view(np.uint16)
    nibbles = words >> 12 << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(nibbles, axis=-1, keepdims=True).view(np.uint8)
    scales = words[..., np.newaxis] >> np.array([0, 3, 6, 9], np.uint16) & 7
    words[...] = _UNIT.view(np.uint16) >> np.array([0, 4, 8, 12], np.uint16) << 12
    return _block("IQ1_M", blocks, d, scales)


def _ternary(type_name: str) -> Callable[[Bytes, int], IntegerBlock]:
    """TQ1_0, TQ2_0: -1, 0 or 1 times d, the last two bytes of a block."""

    def decode(rows: Bytes, columns: int) -> IntegerBlock:
        blocks = rows.reshape(len(rows), columns // 256, -1).copy()
        d = np.ascontiguousarray(blocks[..., -2:]).view(np.float16)
        blocks[..., -2:] = _UNIT
        return IntegerBlock(
            integers=(_entries(type_name, blocks) + 1).astype(np.uint8),
            scale=d.astype(np.float32)[..., 0],
            minimum=None,
        )

    return decode


# By the name of a type in GGUF.
GRID_TYPES: Mapping[str, Callable[[NDArray[np.uint8], int], IntegerBlock]] = {
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "IQ2_XXS": _scales_in_words(
        "IQ2_XXS", lambda blocks: blocks[..., 2:].view(np.uint32)[..., 1::2]
    ),
    "IQ2_XS": _scales_in_nibbles("IQ2_XS", 8),
    "IQ2_S": _scales_in_nibbles("IQ2_S", 8),
    "IQ3_XXS": _scales_in_words("IQ3_XXS", lambda blocks: blocks[..., 66:].view(np.uint32)),
    "IQ3_S": _scales_in_nibbles("IQ3_S", 4),
    "TQ1_0": _ternary("TQ1_0"),
    "TQ2_0": _ternary("TQ2_0"),
}
