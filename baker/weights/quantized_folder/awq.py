"""AWQ, version "gemm": a weight is scale * (q - z), q and z of 4 bits.

Source: AutoAWQ, awq/modules/linear/gemm.py, awq/utils/packing_utils.py. The matrix is stored with
its inputs as rows. An i32 of `qweight` or `qzeros` holds eight outputs, not in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    columns_of_a_scale,
    integer_storage,
    scaled_rows,
    unpack,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import (
        Array,
        ReadRows,
        ScaledRows,
        StoredParts,
    )
    from hearthd.models.decoder.config.config_json import ConfigJson

_BITS, _VERSION = 4, "gemm"
_IN_WORD = 32 // _BITS
# Where each of eight outputs is in an i32, in steps of four bits.
_POSITIONS = (0, 4, 1, 5, 2, 6, 3, 7)


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    for key in ("version", "checkpoint_format"):
        if (version := config.text(key, default=_VERSION)).lower() != _VERSION:
            raise ConfigError(
                f"config.json: quantization_config: {key}: got {version!r:.80} of AWQ, expected "
                f"{_VERSION!r}; use the unquantized folder or a GGUF file"
            )
    if (bits := config.size("bits", default=_BITS)) != _BITS:
        raise ConfigError(
            f"config.json: quantization_config: bits: got {bits} of AWQ, expected {_BITS}; use the "
            "unquantized folder or a GGUF file"
        )
    inputs, words = parts.shape("qweight", "I32", axes=2)
    groups, outputs = parts.shape("scales", *FLOAT_TYPES, axes=2)[0], words * _IN_WORD
    parts.require("scales", (groups, outputs), *FLOAT_TYPES)
    parts.require("qzeros", (groups, words), "I32")
    group = columns_of_a_scale(parts, "scales", inputs, groups)

    def open_rows() -> ReadRows:
        qweight, scales = parts.read("qweight"), parts.read("scales").astype(np.float32)
        zeros = _unpack(parts.read("qzeros")).astype(np.int8)

        def rows(some: slice) -> ScaledRows:
            words = slice(some.start // _IN_WORD, some.stop // _IN_WORD)
            integers = _unpack(qweight[:, words]).T.astype(np.int8)
            return scaled_rows(integers, zeros[:, some].T, scales[:, some].T)

        return rows

    largest = (1 << _BITS) - 1
    return QuantizedMatrix(
        parts=parts,
        type=f"AWQ int{_BITS}",
        shape=(outputs, inputs),
        storage=integer_storage(-largest, largest, group),
        open=open_rows,
    )


def _unpack(words: Array) -> NDArray[np.uint8]:
    """i32 (R, W) as integers (R, 8 W)."""
    stored = unpack(words, _BITS).reshape(*words.shape, _IN_WORD)
    return stored[..., _POSITIONS].reshape(len(words), -1)


AWQ = Method(marks=("qweight",), parts=("qweight", "qzeros", "scales"), matrix=_matrix)
