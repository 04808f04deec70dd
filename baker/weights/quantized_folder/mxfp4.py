"""MXFP4, as gpt-oss is published: the matrices of all experts of a layer are two tensors.

Source: `integrations/mxfp4.py` of transformers. For matrices (N, K) of X experts:

    NAME_blocks  u8 (X, N, K / 32, 16): a byte has two columns, the first one in the low bits
    NAME_scales  u8 (X, N, K / 32): exponents of two (E8M0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.baker.weights.quantized_folder.fp4 import TWICE_E2M1, half_of_power
from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    ScaledRows,
    unpack,
)
from hearthd.models.dsl.matrix_format import MXFP4

if TYPE_CHECKING:
    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

_BLOCKS, _SCALES = "blocks", "scales"
_GROUP_BYTES = 16


def _matrix(parts: StoredParts, _: ConfigJson) -> QuantizedMatrix:
    experts, rows, groups, _group_bytes = parts.shape(_BLOCKS, "U8", axes=4)
    parts.require(_BLOCKS, (experts, rows, groups, _GROUP_BYTES), "U8")
    parts.require(_SCALES, (experts, rows, groups), "U8")

    def open_rows() -> ReadRows:
        blocks = parts.read(_BLOCKS).reshape(experts * rows, groups * _GROUP_BYTES)
        exponents = parts.read(_SCALES).reshape(experts * rows, groups)

        def read_rows(some: slice) -> ScaledRows:
            return ScaledRows(
                numbers=TWICE_E2M1[unpack(blocks[some], 4)], scale=half_of_power(exponents[some])
            )

        return read_rows

    return QuantizedMatrix(
        parts=parts,
        type=f"{parts.method} MXFP4",
        shape=(experts, rows, 2 * _GROUP_BYTES * groups),
        storage=MXFP4.name,
        open=open_rows,
    )


MXFP4_EXPERTS = Method(
    marks=(_BLOCKS, _SCALES), parts=(_BLOCKS, _SCALES), matrix=_matrix, separator="_"
)
