"""MLX's affine quantization of 2, 3, 4, 5, 6 and 8 bits: a weight is scale * q + bias.

Source: MLX, python/mlx/nn/layers/quantized.py and `mlx.core.quantize`. `weight` holds the integers
of a row, the lowest bits first, in words of 32 bits; a scale and a bias are for `group_size`
columns. Biases are not multiples of scales, so no storage keeps the integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    ScaledRows,
    unpack,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

_BITS = (2, 3, 4, 5, 6, 8)
_WORD_BITS = 32


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    settings = config.section(parts.module) if config.has(parts.module) else config
    mode = settings.text("mode", default=config.text("mode", default="affine"))
    if mode != "affine":
        raise ConfigError(
            f"config.json: quantization: mode: got {mode!r:.80} of MLX, expected 'affine'; use the "
            "unquantized folder or a GGUF file"
        )
    outputs, words = parts.shape("weight", "U32", axes=2)
    groups = parts.shape("scales", *FLOAT_TYPES, axes=2)[1]
    for part in ("scales", "biases"):
        parts.require(part, (outputs, groups), *FLOAT_TYPES)
    columns = groups * settings.size("group_size")
    bits = _WORD_BITS * words // columns
    stated = settings.size("bits", default=bits)
    if bits not in _BITS or bits != stated or bits * columns != _WORD_BITS * words:
        raise parts.refused("weight", f"has {words} words of a row for {columns} columns")

    def open_rows() -> ReadRows:
        weight = parts.read("weight")
        scales, biases = (parts.read(part).astype(np.float32) for part in ("scales", "biases"))

        def rows(some: slice) -> ScaledRows:
            grouped = unpack(weight[some], bits).reshape(-1, groups, columns // groups)
            values = grouped * scales[some, :, np.newaxis] + biases[some, :, np.newaxis]
            unscaled = np.ones((len(values), 1), np.float32)
            return ScaledRows(numbers=values.reshape(-1, columns), scale=unscaled)

        return rows

    return QuantizedMatrix(
        parts=parts,
        type=f"MLX int{bits}",
        shape=(outputs, columns),
        storage=None,
        open=open_rows,
    )


MLX = Method(marks=("scales",), parts=("weight", "scales", "biases"), matrix=_matrix)
