"""BitNet: a weight is -1, 0 or 1 times a scale of its matrix.

Source: transformers, integrations/bitnet.py. A byte of `weight` holds four rows, one of each
quarter of the rows, as integers from 0 to 2. With the `linear_class` "autobitlinear",
`weight_scale` multiplies them; with "bitlinear" it divides them. transformers rounds activations to
8 bits with a scale for each token; Hearth with a scale for 32 columns, as for every other matrix of
integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    ScaledRows,
    integer_storage,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

_ROWS_OF_A_BYTE = 4
_LINEAR_CLASSES = ("bitlinear", "autobitlinear")


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    config.fixed(use_rms_norm=False)
    kind = config.text("linear_class", default="bitlinear")
    if kind not in _LINEAR_CLASSES:
        raise ConfigError(
            f"config.json: quantization_config: linear_class: got {kind!r:.80}, expected one of "
            f"{', '.join(_LINEAR_CLASSES)}; use the unquantized folder"
        )
    packed, columns = parts.shape("weight", "U8", axes=2)
    parts.require("weight_scale", (1,), *FLOAT_TYPES)

    def open_rows() -> ReadRows:
        stored, scale = parts.read("weight"), parts.read("weight_scale").astype(np.float32)
        if kind == "bitlinear":
            scale = np.float32(1) / scale

        def rows(some: slice) -> ScaledRows:
            row = np.arange(some.start, some.stop)
            bits = (2 * (row // packed)).astype(np.uint8)[:, np.newaxis]
            integers = (stored[row % packed] >> bits & 3).astype(np.int8) - np.int8(1)
            return ScaledRows(numbers=integers, scale=np.broadcast_to(scale, (len(row), 1)))

        return rows

    return QuantizedMatrix(
        parts=parts,
        type="BitNet ternary",
        shape=(_ROWS_OF_A_BYTE * packed, columns),
        storage=integer_storage(-1, 1, columns),
        open=open_rows,
    )


BITNET = Method(marks=("weight_scale",), parts=("weight", "weight_scale"), matrix=_matrix)
