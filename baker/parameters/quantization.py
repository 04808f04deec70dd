"""From f32 rows to the types that a bundle stores. Knows no files and no tensor names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import ml_dtypes
import numpy as np

from hearthd.baker.parameters.group_scales import best_scales, quotients
from hearthd.baker.parameters.sketch import real_values, sketch_of
from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.matrix_format import GROUP, INT8, INT12, ROWS
from hearthd.models.dsl.matrix_packing import pack
from hearthd.models.dsl.storage import BF16, F32
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.storage import Storage

S = TypeVar("S", bound=np.generic)

# The largest value of a symmetric int8.
INT8_MAX = 127
# The largest magnitude of 12 bits whose upper eight are at most 127, and the steps of one of those.
_INT12_MAX, _INT12_STEPS = 127 * 16 + 7, 16
# The largest magnitude of a Q5_0 integer.
_Q5_0_MAX = 16
# Q5_0 becomes 0, 4 ... 64: the upper four of eight bits have to approximate it in an output head.
_Q5_0_STEPS = 4
# Rows that are tried before a search for better scales, and the part of the squared error that may
# be left for it to be worth its time: of values that had no lattice 0.8 is left, of Q6_K's 0.6.
_SAMPLE = 16
_WORTH = 0.7
# Groups that are searched at once: their temporary arrays stay in the second level of the cache.
_TILE = 2048
# Columns that show of most groups that they are not exact multiples.
_FEW = 4
# The numbers of steps that are tried, f32 (64, 1).
_STEPS = np.arange(INT8_MAX, INT8_MAX // 2, -1, dtype=np.float32)[:, np.newaxis]
# So near to a whole number is one: quotients are below 2^7, and f32 has 24 bits.
_EXACT = 2.0**-15


class NotFiniteError(ValueError):
    """Weights hold a NaN or an infinity, or a value too large for the type to store."""


def encoded(
    storage: Storage, block: NDArray[np.float32], center: NDArray[np.float32] | None = None
) -> tuple[NDArray[Any], ...]:
    """Some rows of a weight f32 (N, K) as the arrays of a storage, in their order.

    Rows that are missing to a multiple of 16 are added to integers, and columns of zeros to a
    multiple of 32. A sketch needs the `center`: see `sketch_of`. Raises NotFiniteError.
    """
    if storage.name == F32.name:
        require_finite(block, block)
        return (block,)
    if storage.name == BF16.name:
        return (to_bf16(block),)
    missing = -block.shape[1] % GROUP
    columns = np.pad(block, ((0, 0), (0, missing))) if missing else block
    return encoded_integers(storage, integer_groups(storage, _filled(columns)), center)


def encoded_integers(
    storage: Storage, block: IntegerBlock, center: NDArray[np.float32] | None = None
) -> tuple[NDArray[Any], ...]:
    """Some rows of a quantized weight as the arrays of a storage that holds its integers.

    Scales are rounded to the format's type, minimums to f16. Where scales are powers of two, those
    below 2^-126 become 0. Rows that are missing to a multiple of 16 are added. Raises
    NotFiniteError for what the type cannot hold.
    """
    assert storage.format is not None, storage.name
    if storage.format.exponents:
        scale: NDArray[Any] = (block.scale.view(np.uint32) >> 23).astype(np.uint8).view(np.int8)
    else:
        scale = _finite(block.scale, storage.format.scale)
    minimum = None if block.minimum is None else _filled(_finite(block.minimum, DType.F16))
    multipliers = None if block.multipliers is None else _filled(block.multipliers)
    integers: NDArray[np.integer[Any]] = _filled(block.integers)
    arrays = pack(storage.format, integers, _filled(scale), minimum, multipliers)
    if not storage.has_sketch:
        return arrays
    assert center is not None, storage.name
    return *arrays, *sketch_of(_filled(real_values(block, storage.format)), center)


def integer_groups(storage: Storage, block: NDArray[np.float32]) -> IntegerBlock:
    """Round f32 (N, K) to the integers of a storage that has a scale for each group, nothing else.

    Raises NotFiniteError for NaN, infinity and what is too large for an f16 scale.
    """
    matrix_format = storage.format
    assert matrix_format is not None, storage.name
    assert not matrix_format.values, storage.name
    assert not matrix_format.minimum, storage.name
    assert not matrix_format.has_multipliers, storage.name
    if matrix_format.bits == INT8.bits:
        return int8_groups(block)
    if matrix_format.bits == INT12.bits:
        return int12_groups(block)
    return nearest_groups(matrix_format, block)


def _finite(values: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        stored = values.astype(dtype.numpy)
    require_finite(values, stored)
    return stored


def _filled(rows: NDArray[S]) -> NDArray[S]:
    """Rows up to a multiple of sixteen: a repeated row's logits are never the largest alone."""
    missing = -len(rows) % ROWS
    if not missing:
        return rows  # without a copy
    return np.pad(rows, ((0, missing), *((0, 0),) * (rows.ndim - 1)), mode="edge")


def to_bf16(block: NDArray[np.float32]) -> NDArray[Any]:
    """f32 of any shape as ml_dtypes.bfloat16, rounded to nearest, ties to even.

    Raises NotFiniteError for NaN, infinity and what bf16 would round to infinity.
    """
    # bfloat16 has NumPy's rules of overflow: the check below says more than its warning.
    with np.errstate(over="ignore"):
        stored = block.astype(ml_dtypes.bfloat16)
    require_finite(block, stored)
    return stored


def int8_groups(block: NDArray[np.float32]) -> IntegerBlock:
    """Quantize f32 (N, K) to int8 with one scale, a value of f16, per 32 columns.

    What was stored as Q8_0 or Q5_0 keeps its values. The scale of another group is max |w| / 127,
    or the best of max |w| / 127, ... / 64 where that is much better: values that had 4 or 6 bits
    lie nearly on the multiples of one of them. Raises NotFiniteError for NaN, infinity and what is
    too large for an f16 scale.
    """
    require_finite(block, block)
    groups = block.reshape(-1, GROUP)
    integers, scale = np.empty(groups.shape, np.int8), np.empty(len(groups), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # of a scale that is refused below
        has_lattice = _has_lattice(groups[: _SAMPLE * block.shape[1] // GROUP])
        for start in range(0, len(groups), _TILE):
            tile = slice(start, start + _TILE)
            scale[tile] = _int8_scales(groups[tile], has_lattice=has_lattice)
            divisor = np.where(scale[tile] > 0, scale[tile], np.float32(np.inf))
            quotients = np.rint(groups[tile] / divisor[:, np.newaxis])
            integers[tile] = np.clip(quotients, -INT8_MAX, INT8_MAX, out=quotients)
    scales = scale.reshape(len(block), -1)
    if not np.isfinite(scales).all():
        require_finite(_largest(groups).reshape(scales.shape), scales)
    return IntegerBlock(integers=integers.reshape(block.shape), scale=scales, minimum=None)


def _int8_scales(groups: NDArray[np.float32], *, has_lattice: bool) -> NDArray[np.float32]:
    """The scales f32 (N,), values of f16, of groups f32 (N, 32): see int8_groups."""
    largest = _largest(groups)
    scales = _f16(largest / np.float32(_Q5_0_STEPS * _Q5_0_MAX))
    # A few columns show of nearly every group that it is not exact.
    exact = _errors(groups[:, :_FEW], scales) == 0
    if exact.any():
        exact = _errors(groups, scales) == 0
    if exact.all():
        return scales
    steps = _search(groups, largest)[0] if has_lattice else np.float32(INT8_MAX)
    return np.where(exact, scales, _f16(largest / steps))


def _has_lattice(groups: NDArray[np.float32]) -> bool:
    """Whether a search for the best number of steps pays, by the first groups f32 (N, 32)."""
    largest = _largest(groups)
    plain = _errors(groups, _f16(largest / np.float32(INT8_MAX)))
    return bool(_search(groups, largest)[1].sum() < _WORTH * plain.sum())


def _search(
    groups: NDArray[np.float32], largest: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The number of steps, from 127 to 64, with the least squared error; and that error.

    Of groups f32 (N, 32) and their largest magnitudes (N,): both (N,).
    """
    scales = _f16(largest / _STEPS)
    errors = np.empty_like(scales)
    for some in np.array_split(np.arange(len(_STEPS)), -(-errors.size // _TILE)):
        errors[some] = _errors(groups, scales[some])
    errors[np.isinf(scales)] = np.inf
    best = errors.argmin(axis=0)  # of equal errors, the error with the most steps
    return _STEPS[best, 0], np.take_along_axis(errors, best[np.newaxis], axis=0)[0]


def nearest_groups(matrix_format: MatrixFormat, block: NDArray[np.float32]) -> IntegerBlock:
    """Round each weight of f32 (N, K) to the nearest integer of a format without minimums.

    Raises NotFiniteError for NaN and infinity.
    """
    require_finite(block, block)
    columns, bits = matrix_format.columns, matrix_format.bits
    values = block.reshape(-1, columns)
    scales = best_scales(values, np.ones(columns, np.float32), bits)
    integers = quotients(values, scales, bits) + matrix_format.zero
    return IntegerBlock(
        integers=integers.astype(np.uint8).reshape(block.shape),
        scale=scales.reshape(len(block), -1),
        minimum=None,
    )


def int12_groups(block: NDArray[np.float32]) -> IntegerBlock:
    """Round f32 (N, K) to 12 bits with one scale, a value of f16, per 32 columns.

    The scale is the smallest f16 of at least max |w| / 127.4375, so that a weight moves by at most
    1/32 of it: half a step. Raises NotFiniteError for NaN, infinity and what is too large for an
    f16 scale.
    """
    require_finite(block, block)
    groups = block.reshape(len(block), -1, GROUP)
    largest = np.max(np.abs(groups), axis=2)
    steps = largest * np.float32(_INT12_STEPS / _INT12_MAX)
    with np.errstate(over="ignore"):  # of a scale that is refused below
        scale = steps.astype(np.float16)
        scale = np.where(scale < steps, np.nextafter(scale, np.float16(np.inf)), scale)
    require_finite(largest, scale)
    divisor = np.where(scale > 0, scale, np.inf).astype(np.float32)[..., np.newaxis]
    integers = np.rint(groups * np.float32(_INT12_STEPS) / divisor) + np.float32(INT12.zero)
    return IntegerBlock(
        integers=integers.astype(np.int16).reshape(block.shape),
        scale=scale.astype(np.float32),
        minimum=None,
    )


def _errors(groups: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums of squared errors of groups (N, K) as multiples of scales (..., N): f32 (..., N)."""
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    missed = groups * inverse[..., np.newaxis]
    missed -= np.rint(missed)
    # Of an exact multiple the division leaves a few units in the last place.
    missed *= np.abs(missed) >= _EXACT
    return np.asarray(np.einsum("...k,...k->...", missed, missed) * scales * scales)


def _largest(groups: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest magnitude of each group f32 (N, K): f32 (N,), NaN where there is one."""
    # Bits of magnitudes are in the order of the values, and faster to compare.
    bits = groups.view(np.int32) & np.int32(0x7FFFFFFF)
    return np.asarray(bits.max(axis=1)).view(np.float32)


def _f16(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to what is stored."""
    return scale.astype(np.float16).astype(np.float32)


def require_finite(block: NDArray[np.float32], stored: NDArray[Any]) -> None:
    """Raise NotFiniteError if a value of `stored` is not finite, naming the block's."""
    finite = np.isfinite(stored)
    if not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise NotFiniteError(f"the weight at {where} of the block is {block[where]}")
