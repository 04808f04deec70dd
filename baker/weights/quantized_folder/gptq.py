"""GPTQ of 2, 3, 4 and 8 bits: a weight is scale * (q - z).

Source: AutoGPTQ, auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py, and GPTQModel. The matrix is
stored with its inputs as rows, and an i32 holds inputs that follow each other. `qzeros` holds
z - 1, in the format "gptq_v2" z. `g_idx` has the group of each input. Without `desc_act`, groups
follow each other; with it they are scattered, and no storage keeps the integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    columns_of_a_scale,
    integer_storage,
    read_groups,
    scaled_rows,
    unpack,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from hearthd.baker.weights.quantized_folder.quantized_matrix import (
        ReadRows,
        ScaledRows,
        StoredParts,
    )
    from hearthd.models.decoder.config.config_json import ConfigJson

_BITS = (2, 3, 4, 8)
# What is added to the stored zero, by `checkpoint_format`.
_FORMATS = {"gptq": 1, "gptq_v2": 0}


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    first_zero = _first_zero(config)
    words, outputs = parts.shape("qweight", "I32", axes=2)
    # Some modules can have more bits than others.
    bits = 32 * parts.shape("qzeros", "I32", axes=2)[1] // outputs
    if bits not in _BITS:
        raise parts.refused("qweight", f"has {bits} bits, expected one of {_BITS}")
    inputs = 32 * words // bits
    groups = parts.shape("scales", *FLOAT_TYPES, axes=2)[0]
    parts.require("qweight", (inputs * bits // 32, outputs), "I32")
    parts.require("scales", (groups, outputs), *FLOAT_TYPES)
    parts.require("qzeros", (groups, outputs * bits // 32), "I32")
    group = columns_of_a_scale(parts, "scales", inputs, groups)
    scattered = groups > 1 and config.flag("desc_act", default=False)
    if scattered or parts.has("g_idx"):
        parts.require("g_idx", (inputs,), "I32")

    def open_rows() -> ReadRows:
        qweight, scales = parts.read("qweight"), parts.read("scales").astype(np.float32)
        zeros = unpack(parts.read("qzeros"), bits).astype(np.int16) + np.int16(first_zero)
        group_of = read_groups(parts, "g_idx", groups) if parts.has("g_idx") else None
        if not scattered and group_of is not None:
            if not np.array_equal(group_of, np.arange(inputs) // group):
                raise parts.refused(
                    "g_idx", "has scattered groups, but desc_act is false in config.json"
                )
            group_of = None

        def rows(some: slice) -> ScaledRows:
            integers = unpack(qweight[:, some].T, bits).astype(np.int16)
            return scaled_rows(integers, zeros[:, some].T, scales[:, some].T, group_of)

        return rows

    low, high = -first_zero - (1 << bits) + 1, (1 << bits) - 1 - first_zero
    if config.flag("sym", default=False):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return QuantizedMatrix(
        parts=parts,
        type=f"GPTQ int{bits}" + (" desc_act" if scattered else ""),
        shape=(outputs, inputs),
        storage=None if scattered else integer_storage(low, high, group),
        open=open_rows,
    )


def _first_zero(config: ConfigJson) -> int:
    """What is added to the stored zeros; raises ConfigError for an unknown format."""
    layout = config.text("checkpoint_format", default="gptq").lower()
    if layout not in _FORMATS:
        raise ConfigError(
            f"config.json: quantization_config: checkpoint_format: got {layout!r:.80} of GPTQ, "
            f"expected {' or '.join(_FORMATS)}; use the unquantized folder or a GGUF file"
        )
    return _FORMATS[layout]


GPTQ = Method(marks=("qweight",), parts=("qweight", "qzeros", "scales", "g_idx"), matrix=_matrix)
