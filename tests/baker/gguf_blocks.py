"""Rows of GGUF's quantized types with random integers, which no quantizer has to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Where the f16 factors are among the bytes of a block.
FACTORS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "Q1_0": [0], "IQ1_S": [0], "IQ1_M": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52],
    "TQ2_0": [64], "Q2_0": [0], "NVFP4": [],
}  # fmt: skip


def block_size(name: str) -> tuple[int, int]:
    """The columns and the bytes of a block of a type."""
    if name == "Q2_0":  # newer than the package gguf
        return 64, 18
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def random_rows(
    name: str, rows: int, columns: int, *, size: float = 2**-6, seed: int = 7
) -> NDArray[np.uint8]:
    """Blocks of a type, uint8 (rows, bytes of a row); factors have a standard deviation `size`."""
    rng = np.random.default_rng(seed)
    width, count = block_size(name)
    blocks = rng.integers(0, 256, size=(rows, columns // width, count), dtype=np.uint8)
    for at in FACTORS[name]:
        factors = rng.normal(size=(*blocks.shape[:2], 1)) * size
        blocks[..., at : at + 2] = factors.astype(np.float16).view(np.uint8)
    if name == "MXFP4":  # exponents of two
        blocks[..., 0] = rng.integers(112, 122, size=blocks.shape[:2])
    if name == "NVFP4":  # floats of 8 bits; a few scales are 0 or have a sign, which is ignored
        blocks[..., :4] &= 0xBF
        blocks[0, 0, 0] = 0x7F  # stands for 0
    if name == "IQ1_M":  # a factor has the upper four bits of four words
        factors = (rng.normal(size=(*blocks.shape[:2], 1)) * size).astype(np.float16)
        nibbles = factors.view(np.uint16) >> np.array([0, 4, 8, 12], np.uint16) << 12
        words = blocks[..., 48:].view(np.uint16)
        words[...] = words & 0x0FFF | nibbles
    return blocks.reshape(rows, -1)


def values_of(name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values of rows of blocks, as the gguf package computes them."""
    if name == "Q1_0":  # gguf knows its size alone
        blocks = rows.reshape(len(rows), -1, 18)
        signs = np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little") * np.float32(2) - 1
        scaled: NDArray[np.float32] = signs * np.ascontiguousarray(blocks[..., :2]).view(np.float16)
        return scaled.reshape(len(rows), -1)
    if name == "Q2_0":
        blocks = rows.reshape(len(rows), -1, 18)
        twos = blocks[..., 2:, np.newaxis] >> np.array([0, 2, 4, 6], np.uint8) & 3
        levels = twos.reshape(*blocks.shape[:2], 64) - np.float32(1)
        result: NDArray[np.float32] = levels * np.ascontiguousarray(blocks[..., :2]).view("<f2")
        return result.reshape(len(rows), -1)
    values: NDArray[np.float32] = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])
    return values
