"""The values of matrices of integers, in the DSL and in NumPy, and products with them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.base_three import unpacked_digits
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.grid_integers import grid_integers, grid_multipliers
from hearthd.models.dsl.matrix_format import FORMATS, GROUP, QUAD, QUADS, ROWS
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Array, Attrs, Types


def dequantized(
    arrays: Sequence[Tensor], matrix_format: MatrixFormat, dtype: DType = DType.F32
) -> Tensor:
    """The real weights (N, K) of stored arrays."""
    count = matrix_format.integer_arrays
    planes, factors = arrays[:count], arrays[count:]
    values = by_rows(_quads(planes, matrix_format), dtype)
    if matrix_format.bits > 8:
        values = values + by_rows(planes[1], dtype) * _upper_step(matrix_format)
    if offset := _offset(matrix_format):
        values = values - offset
    return _scaled(values, *_factors(planes, factors, matrix_format, dtype))


def _upper_step(matrix_format: MatrixFormat) -> float:
    """What multiplies the upper eight of 12 bits, signed integers."""
    return float(1 << matrix_format.planes[1].start)


def _offset(matrix_format: MatrixFormat) -> float:
    """The zero to subtract from the integers of `_quads`."""
    return float(matrix_format.zero) if matrix_format.operand_bits > 7 else 0.0


def _factors(
    planes: Sequence[Tensor],
    factors: Sequence[Tensor],
    matrix_format: MatrixFormat,
    dtype: DType,
) -> Sequence[Tensor]:
    """The scale of each group (N / 16, groups, 16), and the minimum, if there are minimums."""
    groups = planes[0].shape[1] * (GROUP // matrix_format.columns)
    scale, *minimum = _of_groups(factors, groups, matrix_format, dtype)
    grid = matrix_format.grid
    if grid is not None and grid.multiplier is not None:
        scale = scale * ops.convert(grid_multipliers(planes, grid), dtype=dtype)
    if matrix_format.steps > 1:
        scale = ops.convert(scale, dtype=dtype) * (1 / matrix_format.steps)
    return scale, *minimum


def _of_groups(
    factors: Sequence[Tensor], groups: int, matrix_format: MatrixFormat, dtype: DType
) -> Sequence[Tensor]:
    """Stored scales and minimums of each group (N / 16, groups, 16)."""
    if matrix_format.exponents:
        factors = _powers_of_two(factors[0]), *factors[1:]
    if not matrix_format.super_block:
        return factors
    bits, columns = matrix_format.multiplier_bits, matrix_format.columns
    each = matrix_format.super_block // columns
    results = []
    for i, factor in enumerate(factors[:-1] if bits else factors):
        blocks, count, rows = factor.shape
        repeated = ops.broadcast(factor, shape=(blocks, count, each, rows), axes=(0, 1, 3))
        by_group = ops.reshape(repeated, shape=(blocks, count * each, rows))
        scale = ops.convert(f.narrow(by_group, 1, 0, groups), dtype=dtype)
        if bits:
            stored = factors[-1]
            if matrix_format.multiplier_floats:
                multiplier = _floats_of_8(stored)
            elif bits == 8:
                multiplier = f.narrow(stored, 2, i, i + 1)
            elif matrix_format.minimum:
                multiplier = _taken(stored, 4 * i, 4)
            else:
                halves = [_taken(stored, 4 * half, 4) for half in range(GROUP // columns)]
                multiplier = ops.concatenate(*halves, axis=2) * 2 + 1
            multiplier = ops.reshape(multiplier, shape=(blocks, groups, rows))
            scale = scale * ops.convert(multiplier, dtype=dtype)
        results.append(scale)
    return results


def _powers_of_two(exponents: Tensor) -> Tensor:
    """2^(e - 127) for the bits of exponents, i8 of any shape; 0 for 0."""
    return _numbered((np.arange(256, dtype=np.uint32) << 23).view(np.float32), exponents)


def _floats_of_8(stored: Tensor) -> Tensor:
    """Floats E4M3 without a sign, i8 of any shape, as f32: f16 with other exponents."""
    halves = ((np.arange(256, dtype=np.uint16) & 127) << 7).view(np.float16)
    return _numbered(halves.astype(np.float32) * 2**8, stored)


def _numbered(table: Array, stored: Tensor) -> Tensor:
    """The entries of a table of 256 that bytes number, i8 of any shape."""
    numbers = ops.convert(stored, dtype=DType.I32)
    bytes_ = ops.bitwise_and(numbers, ops.full_like(numbers, 255))
    return ops.gather(ops.constant(value=table), bytes_, axis=0)


def _quads(planes: Sequence[Tensor], matrix_format: MatrixFormat) -> Tensor:
    """The integers of planes, or the values that they number, i8 (N / 16, K / 32, 8, 64).

    Of 12 bits, the lower four.
    """
    integers = _integers(planes, matrix_format)
    return _values(integers, matrix_format) if matrix_format.values else integers


def _integers(planes: Sequence[Tensor], matrix_format: MatrixFormat) -> Tensor:
    """The integers of planes, as `_quads`; i32 if there is a grid."""
    if matrix_format.bits > 8:
        return _unpacked(planes[0], planes[0].shape[2])
    if matrix_format.grid is not None:
        return grid_integers(planes, matrix_format)
    integers: Tensor | None = None
    for plane, stored in zip(planes, matrix_format.planes, strict=True):
        bits = unpacked_digits(plane) if stored.has_digits else _unpacked(plane, stored.bits)
        if stored.start:
            bits = ops.shift_left(bits, ops.full_like(bits, stored.start))
        integers = bits if integers is None else ops.bitwise_or(integers, bits)
    assert integers is not None
    if matrix_format.missing:
        integers = ops.bitwise_or(integers, ops.full_like(integers, matrix_format.missing))
    if matrix_format.zero and matrix_format.operand_bits <= 7:  # no less exact, and faster
        integers = integers - ops.full_like(integers, matrix_format.zero)
    return integers


def _values(numbers: Tensor, matrix_format: MatrixFormat) -> Tensor:
    """The values i8 that numbers stand for."""
    if numbers.dtype is not DType.I32:
        numbers = ops.convert(numbers, dtype=DType.I32)
    table = ops.constant(value=np.array(matrix_format.values, np.int8))
    return ops.gather(table, numbers, axis=0)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """The quads (..., 8, 64) of a plane of 1, 2, 4 or 8 bits."""
    if bits == 8:
        return packed
    starts = range(0, 8, bits)
    if bits == 4:
        quads = [_taken(packed, start, bits) for start in starts]
    else:
        bytes_ = (f.narrow(packed, 2, byte, byte + 1) for byte in range(bits))
        quads = [_taken(byte, start, bits) for byte in bytes_ for start in starts]
    return ops.concatenate(*quads, axis=2)


def _taken(x: Tensor, start: int, count: int) -> Tensor:
    """`count` bits of each byte, from bit `start`."""
    moved = ops.shift_right(x, ops.full_like(x, start)) if start else x
    return ops.bitwise_and(moved, ops.full_like(x, (1 << count) - 1))


def by_rows(integers: Tensor, dtype: DType) -> Tensor:
    """Stored integers (N / 16, K / 32, 8, 64) by block and row: (N / 16, 16, K)."""
    blocks, groups = integers.shape[:2]
    quads = ops.reshape(integers, shape=(blocks, groups, QUADS, ROWS, QUAD))
    ordered = ops.transpose(quads, order=(0, 3, 1, 2, 4))
    rows = ops.reshape(ordered, shape=(blocks, ROWS, groups * GROUP))
    return ops.convert(rows, dtype=dtype)


def _scaled(values: Tensor, scale: Tensor, minimum: Tensor | None = None) -> Tensor:
    """Values (N / 16, 16, K) times stored scales, plus stored minimums: (N, K)."""
    blocks, rows, columns = values.shape

    def groups(x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        count = factors.shape[1]
        grouped = ops.reshape(x, shape=(blocks, rows, count, columns // count))
        ordered = ops.transpose(ops.convert(factors, dtype=x.dtype), order=(0, 2, 1))
        return grouped, f.along_axes(ordered, grouped, (3,))

    result = ops.multiply(*groups(values, scale))
    if minimum is not None:
        result = ops.add(*groups(result, minimum))
    return ops.reshape(result, shape=(blocks * rows, columns))


@functools.lru_cache(maxsize=256)
def _operands(types: Types, name: str, dtype: DType) -> Graph:
    """The graph of the integers and the factors of arrays of these types, of a format."""
    matrix_format = FORMATS[name]
    count = matrix_format.integer_arrays

    def operands(*arrays: Tensor) -> tuple[Tensor, ...]:
        factors = _factors(arrays[:count], arrays[count:], matrix_format, dtype)
        return _integers(arrays[:count], matrix_format), *factors

    return trace("operands", operands, {f"x{i}": type_ for i, type_ in enumerate(types)})


def _in_numpy(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    """The products of integers of each group, then times its scale: no weight is scaled."""
    x, *stored = arrays
    matrix_format = FORMATS[attrs["matrix_format"]]
    types = tuple(TensorType(array.shape, DType.of(array.dtype)) for array in stored)
    graph = _operands(types, matrix_format.name, DType.of(x.dtype))
    quads, *factors = evaluate(graph, stored, {})
    if matrix_format.values:  # several times as fast as indices
        table = np.array(matrix_format.values, np.int8).tobytes().ljust(256)
        values = quads.astype(np.uint8).tobytes().translate(table)
        quads = np.frombuffer(values, np.int8).reshape(quads.shape)
    # Digits of base three are i32.
    weights = _by_group(quads.astype(np.int8), matrix_format.columns, x.dtype)
    if matrix_format.bits > 8:
        upper = _by_group(stored[1], matrix_format.columns, x.dtype)
        weights += upper * x.dtype.type(_upper_step(matrix_format))
    if offset := _offset(matrix_format):
        weights -= x.dtype.type(offset)
    groups, outputs, columns = weights.shape
    rows = np.ascontiguousarray(x.reshape(len(x), groups, columns).transpose(1, 0, 2))
    scale, *minimum = (
        factor.transpose(1, 0, 2).reshape(groups, outputs).astype(x.dtype) for factor in factors
    )
    products = np.matmul(rows, weights.transpose(0, 2, 1))
    products *= scale[:, np.newaxis]
    result: Array = products.sum(axis=0)
    return result + rows.sum(axis=2).T @ minimum[0] if minimum else result


def _by_group(quads: Array, columns: int, dtype: np.dtype[Any]) -> Array:
    """Quads i8 (N / 16, K / 32, 8, 64) as `dtype` (K / columns, N, columns)."""
    blocks, groups = quads.shape[:2]
    parts = GROUP // columns
    # A quad is moved as one element.
    wide = np.ascontiguousarray(quads).view(np.uint32)
    split = wide.reshape(blocks, groups, parts, QUADS // parts, ROWS)
    ordered = np.ascontiguousarray(split.transpose(1, 2, 0, 4, 3)).view(np.int8)
    return ordered.reshape(groups * parts, blocks * ROWS, columns).astype(dtype)


@composite(blocks=True, in_numpy=_in_numpy)
def quantized_product(x: Tensor, *arrays: Tensor, matrix_format: str) -> Tensor:
    """x W^T for x (M, K) and a matrix W (N, K) of a format."""
    weight = dequantized(arrays, FORMATS[matrix_format], x.dtype)
    return ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=x.dtype)
