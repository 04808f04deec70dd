"""FP8 (e4m3): a weight is a float of 8 bits times the scale of its block, its row or its matrix.

Source: transformers, integrations/finegrained_fp8.py. `weight_scale_inv` multiplies, whatever its
name says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    ScaledRows,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

_SCALE = "weight_scale_inv"


def block_of(config: ConfigJson, key: str) -> tuple[int, int] | None:
    """The rows and columns of a block of a scale; None if scales have no blocks.

    Raises ConfigError.
    """
    match config.counts(key, default=()):
        case []:
            return None
        case [int(height), int(width)] if height and width:
            return height, width
        case other:
            raise ConfigError(
                f"config.json: quantization_config: {key}: got {other!r:.80}, expected the rows "
                "and the columns of a block"
            )


def float8(
    parts: StoredParts, scale_part: str, block: tuple[int, int] | None, type_: str
) -> QuantizedMatrix:
    """The matrix in `weight`; `block` are the rows and columns of a block, if scales have blocks.

    Raises BadFile for shapes that do not fit.
    """
    rows, columns = parts.shape("weight", "F8_E4M3", axes=2)
    height, width = block or (1, columns)
    expected = -(-rows // height), -(-columns // width)
    if parts.shape(scale_part, *FLOAT_TYPES) not in ((), (1,), (1, 1)):
        parts.require(scale_part, expected, *FLOAT_TYPES)

    def open_rows() -> ReadRows:
        weight, stored = parts.read("weight"), parts.read(scale_part).astype(np.float32)
        scale = _by_columns(stored, expected, width, columns)

        def read_rows(some: slice) -> ScaledRows:
            in_block = np.arange(some.start, some.stop) // height
            return ScaledRows(numbers=weight[some].astype(np.float32), scale=scale[in_block])

        return read_rows

    return QuantizedMatrix(
        parts=parts, type=type_, shape=(rows, columns), storage=None, open=open_rows
    )


def _by_columns(
    stored: NDArray[np.float32], blocks: tuple[int, int], width: int, columns: int
) -> NDArray[np.float32]:
    """The scales of rows of blocks, each for as many columns; for one if the last block is cut."""
    if stored.size == 1:
        return np.broadcast_to(stored.reshape(1, 1), (blocks[0], 1))
    return stored if columns % width == 0 else np.repeat(stored, width, axis=1)[:, :columns]


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    return float8(parts, _SCALE, block_of(config, "weight_block_size"), "FP8")


FP8 = Method(
    marks=(_SCALE,),
    parts=("weight", _SCALE, "activation_scale", "input_scale"),
    matrix=_matrix,
    unused=(".k_scale", ".v_scale"),
)
