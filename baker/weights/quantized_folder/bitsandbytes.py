"""bitsandbytes of 4 bits (NF4 and FP4) and of 8 bits.

Source: bitsandbytes, functional.py (QuantState), nn/modules.py. Four bits number one of sixteen
floats, `quant_map`, and 64 weights that follow each other share a scale, `absmax`, which can be
quantized again ("double quantization"). Eight bits are integers, with a scale for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    Method,
    QuantizedMatrix,
    ScaledRows,
    integer_storage,
    unpack,
)
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.bundle.parsing import strict_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

    Floats: TypeAlias = NDArray[np.float32]

_STATE = "weight.quant_state.bitsandbytes__"
_KINDS = ("nf4", "fp4")
_ABSMAX, _MAP = "weight.absmax", "weight.quant_map"
_NESTED_ABSMAX, _NESTED_MAP = "weight.nested_absmax", "weight.nested_quant_map"
_NESTED_BLOCK = 256
_ROW_SCALE, _ROW_STEPS = "SCB", 127


def _matrix(parts: StoredParts, _: ConfigJson) -> QuantizedMatrix:
    return _eight_bits(parts) if parts.has(_ROW_SCALE) else _four_bits(parts)


def _eight_bits(parts: StoredParts) -> QuantizedMatrix:
    rows, columns = parts.shape("weight", "I8", axes=2)
    parts.require(_ROW_SCALE, (rows,), "f32")

    def open_rows() -> ReadRows:
        weight = parts.read("weight")
        row_scale: Floats = parts.read(_ROW_SCALE)
        scale = row_scale.reshape(rows, 1) / np.float32(_ROW_STEPS)
        return lambda some: ScaledRows(numbers=weight[some].astype(np.int16), scale=scale[some])

    return QuantizedMatrix(
        parts=parts,
        type=f"{parts.method} int8",
        shape=(rows, columns),
        storage=integer_storage(-128, 127, columns),
        open=open_rows,
    )


def _four_bits(parts: StoredParts) -> QuantizedMatrix:
    kind = next((kind for kind in _KINDS if parts.has(_STATE + kind)), _KINDS[0])
    state = _read_state(parts, _STATE + kind)
    rows, columns = state.shape
    blocks = -(-rows * columns // state.block)
    parts.require("weight", (-(-rows * columns // 2), 1), "U8")
    parts.require(_MAP, (16,), *FLOAT_TYPES)
    parts.require(_ABSMAX, (blocks,), "f32" if state.nested_block is None else "U8")
    if state.nested_block is not None:
        parts.require(_NESTED_MAP, (256,), *FLOAT_TYPES)
        parts.require(_NESTED_ABSMAX, (-(-blocks // state.nested_block),), "f32")

    def open_rows() -> ReadRows:
        stored, numbers = parts.read("weight").reshape(-1), parts.read(_MAP).astype(np.float32)
        absmax = _absmax(parts, state)

        def read_rows(some: slice) -> ScaledRows:
            start, stop = some.start * columns, some.stop * columns
            # The first weight of two is in the upper bits.
            pairs = unpack(stored[start // 2 : -(-stop // 2)], 4).reshape(-1, 2)[:, ::-1]
            codes = pairs.reshape(-1)[: stop - start]
            scale = absmax[np.arange(start, stop) // state.block]
            return ScaledRows(
                numbers=numbers[codes].reshape(-1, columns), scale=scale.reshape(-1, columns)
            )

        return read_rows

    return QuantizedMatrix(
        parts=parts,
        type=f"{parts.method} {kind}",
        shape=(rows, columns),
        storage=None,
        open=open_rows,
        is_flat=columns == 1,
    )


@dataclass(frozen=True, kw_only=True)
class _State:
    """What the JSON of a matrix says.

    shape          (N, K), or (N * K, 1) for a copy of headers
    block          weights that share a scale
    nested_block   scales that share a scale; None if they are not quantized
    nested_offset  added to quantized scales
    """

    shape: tuple[int, int]
    block: int
    nested_block: int | None = None
    nested_offset: float = 0.0


def _absmax(parts: StoredParts, state: _State) -> Floats:
    """The scales of blocks."""
    stored = parts.read(_ABSMAX)
    if state.nested_block is None:
        return stored
    outer = parts.read(_NESTED_ABSMAX)[np.arange(len(stored)) // state.nested_block]
    inner = parts.read(_NESTED_MAP).astype(np.float32)[stored]
    return np.asarray(inner * outer + np.float32(state.nested_offset))


def _read_state(parts: StoredParts, part: str) -> _State:
    """Read the JSON; raises BadFile unless it describes a matrix."""
    parts.shape(part, "U8", axes=1)
    text = parts.read(part).tobytes()
    if not any(text):  # a copy of the headers, which has no values
        bytes_ = parts.shape("weight", "U8", axes=2)[0]
        blocks = parts.shape(_ABSMAX, "f32", "U8", axes=1)[0]
        return _State(
            shape=(2 * bytes_, 1),
            block=-(-2 * bytes_ // blocks),
            nested_block=_NESTED_BLOCK if parts.has(_NESTED_ABSMAX) else None,
        )
    try:
        data = strict_json.parse(text.decode())
        rows, columns = data["shape"]
        nested_block = data.get("nested_blocksize")
        state = _State(
            shape=(rows, columns),
            block=data["blocksize"],
            nested_block=nested_block,
            nested_offset=0.0 if nested_block is None else float(data["nested_offset"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise parts.refused(part, "does not describe a matrix") from error
    counts = (*state.shape, state.block, 1 if state.nested_block is None else state.nested_block)
    if any(type(count) is not int or count < 1 for count in counts):
        raise parts.refused(part, f"has sizes that are not integers above 0: {counts!r:.80}")
    return state


BITSANDBYTES = Method(
    marks=(_ABSMAX, _ROW_SCALE),
    parts=(
        "weight", _ABSMAX, _MAP, _NESTED_ABSMAX, _NESTED_MAP, _ROW_SCALE, "weight_format",
        *(_STATE + kind for kind in _KINDS),
    ),
    matrix=_matrix,
)  # fmt: skip
