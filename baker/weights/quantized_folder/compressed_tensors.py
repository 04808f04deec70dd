"""compressed-tensors, as llm-compressor writes it.

Source: the package compressed-tensors, `compressors` and `quantization/lifecycle/forward.py`. Each
matrix says by its tensors how it is stored: a folder can hold several formats.

    pack-quantized  `weight_packed` i32: integers of 1 to 8 bits, plus half of their range
    int-quantized   `weight` i8
    float-quantized `weight` f8
    nvfp4-pack-quantized, mxfp4-pack-quantized  `weight_packed` u8
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.fp4 import float4
from hearthd.baker.weights.quantized_folder.fp8 import block_of, float8
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import (
        ReadRows,
        ScaledRows,
        StoredParts,
    )
    from hearthd.models.decoder.config.config_json import ConfigJson

_SCALE, _ZERO, _GROUPS = "weight_scale", "weight_zero_point", "weight_g_idx"


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    if parts.has("weight_packed"):
        is_fp4 = parts.type("weight_packed") == "U8"
        return float4(parts) if is_fp4 else _packed(parts, config)
    if parts.has("weight") and parts.type("weight") == "F8_E4M3":
        return float8(parts, _SCALE, _block(parts, config), f"{parts.method} FP8")
    return _integers(parts)


def _packed(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    rows, words = parts.shape("weight_packed", "I32", axes=2)
    bits, columns = _bits_and_columns(parts, words, config)
    groups = _scales_of_a_row(parts, rows, columns)
    asymmetric, scattered = parts.has(_ZERO), parts.has(_GROUPS) and groups > 1
    if asymmetric:  # packed along the rows
        parts.require(_ZERO, (-(-rows * bits // 32), groups), "I32")
    if scattered:
        parts.require(_GROUPS, (columns,), "I32")

    def open_rows() -> ReadRows:
        packed, scale = parts.read("weight_packed"), _read_scale(parts, rows)
        zero: NDArray[np.int16] | int = 1 << bits - 1
        if asymmetric:
            zero = unpack(parts.read(_ZERO).T, bits).T[:rows].astype(np.int16)
        group_of = read_groups(parts, _GROUPS, groups) if scattered else None

        def read_rows(some: slice) -> ScaledRows:
            integers = unpack(packed[some], bits)[:, :columns].astype(np.int16)
            zeros = zero if isinstance(zero, int) else zero[some]
            return scaled_rows(integers, zeros, scale[some], group_of)

        return read_rows

    group = columns_of_a_scale(parts, _SCALE, columns, groups)
    return QuantizedMatrix(
        parts=parts,
        type=f"compressed-tensors int{bits}" + (" actorder" if scattered else ""),
        shape=(rows, columns),
        storage=None if scattered else _storage(bits, asymmetric, group),
        open=open_rows,
    )


def _integers(parts: StoredParts) -> QuantizedMatrix:
    rows, columns = parts.shape("weight", "I8", axes=2)
    groups, asymmetric = _scales_of_a_row(parts, rows, columns), parts.has(_ZERO)
    if asymmetric:
        parts.require(_ZERO, parts.shape(_SCALE, *FLOAT_TYPES, axes=2), "I8")

    def open_rows() -> ReadRows:
        weight, scale = parts.read("weight"), _read_scale(parts, rows)
        zero = parts.read(_ZERO).astype(np.int16) if asymmetric else None

        def read_rows(some: slice) -> ScaledRows:
            integers = weight[some].astype(np.int16)
            return scaled_rows(integers, 0 if zero is None else zero[some], scale[some])

        return read_rows

    group = columns_of_a_scale(parts, _SCALE, columns, groups)
    return QuantizedMatrix(
        parts=parts,
        type="compressed-tensors int8",
        shape=(rows, columns),
        storage=_storage(8, asymmetric, group),
        open=open_rows,
    )


def _bits_and_columns(parts: StoredParts, words: int, config: ConfigJson) -> tuple[int, int]:
    """The bits of an integer, by the scheme that fits the stored shape; and K."""
    bits = [scheme.size("num_bits", limit=8) for scheme in _schemes(config)]
    parts.require("weight_shape", (2,), "I64", "I32")
    columns = int(parts.read("weight_shape")[1])
    if not columns and bits:  # a copy of the headers, which has no values
        return bits[0], words * 32 // bits[0]
    fitting = [count for count in bits if -(-columns * count // 32) == words]
    if not fitting:
        raise parts.refused(
            "weight_packed", f"has {words} words of a row, {columns} columns of {bits} bits do not"
        )
    return fitting[0], columns


def _schemes(config: ConfigJson) -> list[ConfigJson]:
    """How the weights of each group of modules are quantized."""
    return [group.section("weights") for group in config.sections("config_groups")]


def _block(parts: StoredParts, config: ConfigJson) -> tuple[int, int] | None:
    """The rows and columns of a block, if scales have blocks and not rows."""
    shape = parts.shape(_SCALE, *FLOAT_TYPES)
    if shape and shape[0] == parts.shape("weight", "F8_E4M3", axes=2)[0]:
        return None
    blocks = (block_of(scheme, "block_structure") for scheme in _schemes(config))
    return next(filter(None, blocks), None)


def _scales_of_a_row(parts: StoredParts, rows: int, columns: int) -> int:
    """How many scales a row has; raises BadFile for shapes that are not (N, G) or (1,)."""
    shape = parts.shape(_SCALE, *FLOAT_TYPES)
    if shape in ((), (1,)):
        return 1
    parts.require(_SCALE, (rows, shape[-1]), *FLOAT_TYPES)
    columns_of_a_scale(parts, _SCALE, columns, shape[-1])
    return shape[-1]


def _read_scale(parts: StoredParts, rows: int) -> NDArray[np.float32]:
    """The scales, f32 (N, G)."""
    scale = parts.read(_SCALE).astype(np.float32)
    return np.broadcast_to(scale.reshape(1, 1), (rows, 1)) if scale.size == 1 else scale


def _storage(bits: int, asymmetric: bool, group: int) -> str | None:
    if asymmetric:
        return integer_storage(1 - (1 << bits), (1 << bits) - 1, group)
    return integer_storage(-(1 << bits - 1), (1 << bits - 1) - 1, group)


COMPRESSED_TENSORS = Method(
    marks=("weight_packed", _SCALE),
    parts=(
        "weight", "weight_packed", "weight_shape", "weight_global_scale", _SCALE, _ZERO, _GROUPS,
        "input_scale", "input_zero_point", "input_global_scale", "output_scale",
        "output_zero_point",
    ),
    matrix=_matrix,
    unused=(".k_scale", ".v_scale", ".k_zero_point", ".v_zero_point"),
)  # fmt: skip
