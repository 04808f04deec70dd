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
    "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip


def random_rows(
    name: str, rows: int, columns: int, *, size: float = 2**-6, seed: int = 7
) -> NDArray[np.uint8]:
    """Blocks of a type, uint8 (rows, bytes of a row); factors have a standard deviation `size`."""
    rng = np.random.default_rng(seed)
    width, count = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, size=(rows, columns // width, count), dtype=np.uint8)
    for at in FACTORS[name]:
        factors = rng.normal(size=(*blocks.shape[:2], 1)) * size
        blocks[..., at : at + 2] = factors.astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def values_of(name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values of rows of blocks, as the gguf package computes them."""
    values: NDArray[np.float32] = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])
    return values
