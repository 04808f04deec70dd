"""Products with matrices of integers, and lookups of their rows (models/dsl/matrix_format.py).

The compiler's own form of such a product is several times slower, and the more so the more rows
there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import bits_of, require_bits, require_rows, rounded, steps
from hearthd.models.dsl.base_three import unpacked_digits
from hearthd.models.dsl.composite import Fused, composite
from hearthd.models.dsl.grid_integers import grid_integers, grid_multipliers
from hearthd.models.dsl.kernel_sources import variant
from hearthd.models.dsl.matrix_format import FORMATS, GROUP, QUAD, QUADS, ROWS
from hearthd.models.dsl.matrix_packing import pack
from hearthd.models.dsl.ops.record import Kernel, Reads, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["embedding_quantized", "linear_quantized"]

# Blocks of sixteen outputs and rows that one workgroup computes, and workgroups of a product.
_MAX_BLOCKS, _MAX_ROWS, MIN_WORKGROUPS = 64, 32, 8
# Activations of 8 bits are multiplied in half the time, so that rounding them twice matters.
_MAX_SMALL_ROWS = 16


def format_of(attrs: Attrs) -> MatrixFormat:
    """The format that a product's attribute `matrix_format` names; raises TypeRuleError."""
    name = attrs["matrix_format"]
    require(name in FORMATS, f"a matrix_format of {', '.join(FORMATS)}")
    return FORMATS[name]


# --- values


def dequantized(
    arrays: Sequence[Tensor], matrix_format: MatrixFormat, dtype: DType = DType.F32
) -> Tensor:
    """The real weights (N, K) of stored arrays."""
    count = matrix_format.integer_arrays
    planes, factors = arrays[:count], arrays[count:]
    values = _integers(planes, matrix_format, dtype)
    if matrix_format.zero and matrix_format.operand_bits > 7:
        values = values - float(matrix_format.zero)
    if matrix_format.steps > 1:
        values = values * (1 / matrix_format.steps)
    groups = values.shape[2] // matrix_format.columns
    scale, *minimum = _of_groups(factors, groups, matrix_format, dtype)
    grid = matrix_format.grid
    if grid is not None and grid.multiplier is not None:
        scale = scale * ops.convert(grid_multipliers(planes, grid), dtype=dtype)
    return _scaled(values, scale, *minimum)


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


def _integers(planes: Sequence[Tensor], matrix_format: MatrixFormat, dtype: DType) -> Tensor:
    """The integers of planes, or the values that they number, by block and row: (N / 16, 16, K)."""
    if matrix_format.bits > 8:  # the upper plane has signed integers of 8 bits
        low, high = (by_rows(_unpacked(plane, plane.shape[2]), dtype) for plane in planes)
        return low + high * float(1 << matrix_format.planes[1].start)
    if matrix_format.grid is not None:
        return by_rows(_values(grid_integers(planes, matrix_format), matrix_format), dtype)
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
    if matrix_format.values:
        integers = _values(ops.convert(integers, dtype=DType.I32), matrix_format)
    return by_rows(integers, dtype)


def _values(numbers: Tensor, matrix_format: MatrixFormat) -> Tensor:
    """The values i8 that numbers i32 stand for."""
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


@composite(blocks=True)
def quantized_product(x: Tensor, *arrays: Tensor, matrix_format: str) -> Tensor:
    """x W^T for x (M, K) and a matrix W (N, K) of a format."""
    weight = dequantized(arrays, FORMATS[matrix_format], x.dtype)
    return ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=x.dtype)


def sample_integers(
    rng: np.random.Generator, matrix_format: MatrixFormat, rows: int, columns: int
) -> NDArray[np.integer[Any]]:
    """Random integers (rows, columns) of a format, which a grid must have."""
    if matrix_format.grid is not None:
        return matrix_format.grid.sample(rng, rows, columns)
    low, high = matrix_format.range
    dtype = np.int16 if matrix_format.bits > 8 else np.int8 if matrix_format.signed else np.uint8
    return rng.integers(low, high + 1, size=(rows, columns), dtype=dtype)


def sample_matrix(
    rng: np.random.Generator, matrix_format: MatrixFormat, rows: int, columns: int
) -> tuple[Array, ...]:
    """The stored arrays of a matrix of all possible integers."""
    integers = sample_integers(rng, matrix_format, rows, columns)
    scales = (rows, matrix_format.arrays(rows, columns)["scale"].shape[1])
    scale: Array = rng.uniform(0.001, 0.01, size=scales).astype(np.float16)
    if not matrix_format.exponents:
        scale = scale.astype(matrix_format.scale.numpy)
    has_minimum, multipliers = matrix_format.minimum, None
    minimum = rng.uniform(-0.1, 0, size=scales).astype(np.float16) if has_minimum else None
    if matrix_format.exponents:
        scale = rng.integers(118, 121, size=scales, dtype=np.int8)
    if matrix_format.has_multipliers:
        shape = (rows, columns // matrix_format.columns, 1 + has_minimum)
        multipliers = rng.integers(0, 8, size=shape, dtype=np.int8) * 2 + 1
    return pack(matrix_format, integers, scale, minimum, multipliers)


# --- linear_quantized


def product_kernel(
    name: str,
    types: Types,
    outputs: int,
    attrs: Attrs,
    *,
    matrix: int = 1,
    workgroups: int = MIN_WORKGROUPS,
) -> Kernel:
    """A kernel whose workgroups share the rows and the blocks of sixteen outputs.

    `types` are those of its inputs: of x (M, K) and, from `matrix` on, of the arrays of a matrix.
    Each workgroup rounds its rows, so rows are divided first, and then blocks, until there are
    `workgroups` of them or one for each block.
    """
    rows, columns = types[0].shape
    blocks = outputs // ROWS
    activation_bits = bits_of(attrs)
    max_rows = _MAX_SMALL_ROWS if activation_bits == 8 else _MAX_ROWS
    parts = -(-rows // max_rows)
    share = min(_MAX_BLOCKS, -(-blocks // -(-workgroups // parts)))
    counts = (type_.size // blocks * share if type_.rank > 2 else 0 for type_ in types[matrix:])
    return Kernel(
        function=variant(name, activation_bits),
        sizes=(share, min(rows, max_rows), rows, outputs, columns),
        workgroups=parts * -(-blocks // share),
        private=(*[0] * matrix, *counts) if parts == 1 else (),
    )


def _linear_quantized(
    x: Tensor, *arrays: Tensor, matrix_format: str, activation_bits: int = 16
) -> Tensor:
    rows = rounded(x, steps(FORMATS[matrix_format], activation_bits))
    return quantized_product(rows, *arrays, matrix_format=matrix_format)


def _limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[0])
    require_bits(attrs)
    format_of(attrs).require(types[1:])


linear_quantized: Fused = Fused(
    name="linear_quantized",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 12 beside integers of 4 "
    "bits, or to 8 (`activation_bits`), times a matrix (N, K) of integers of a `matrix_format`.",
    reference=_linear_quantized,
    limits=_limits,
    kernel=lambda types, result, attrs: product_kernel(
        f"linear_{format_of(attrs).symbol}", types, result.shape[1], attrs
    ),
    rows_apart=True,
    samples=lambda rng: [
        Sample(
            (normal(rng, rows, 64), *sample_matrix(rng, matrix_format, 16, 64)),
            {"matrix_format": matrix_format.name, **more},
        )
        for rows, matrix_format, more in (
            (1, formats.INT8, {}),
            (11, formats.INT2_SUPER_MIN, {"activation_bits": 8}),
            (2, formats.INT12, {}),
            (2, formats.IQ2_XS, {}),
        )
    ],
)


# --- embedding_quantized


def _embedding_quantized(ids: Tensor, *arrays: Tensor, matrix_format: str) -> Tensor:
    block = ops.shift_right(ids, ops.full_like(ids, ROWS.bit_length() - 1))
    row = ops.bitwise_and(ids, ops.full_like(ids, ROWS - 1))
    blocks = tuple(ops.gather(array, block, axis=0) for array in arrays)
    rows = dequantized(blocks, FORMATS[matrix_format])
    first = ops.iota(shape=ids.shape, axis=0, dtype=DType.I32) * ROWS
    return ops.gather(rows, first + row, axis=0)


def _embedding_limits(types: Types, attrs: Attrs) -> None:
    require(types[0].dtype is DType.I32 and types[0].rank == 1, "ids i32 (M,)")
    format_of(attrs).require(types[1:])


embedding_quantized: Fused = Fused(
    name="embedding_quantized",
    doc="Rows of a matrix (V, E) of integers of a `matrix_format`, by their ids: f32 (M, E).",
    reference=_embedding_quantized,
    limits=_embedding_limits,
    kernel=lambda types, result, attrs: Kernel(
        function=f"embedding_{format_of(attrs).symbol}",
        sizes=(result.shape[1],),
        workgroups=types[0].size,
    ),
    samples=lambda rng: [
        Sample(
            (np.array([13, 0, 31], np.int32), *sample_matrix(rng, table, 32, 32)),
            {"matrix_format": table.name},
        )
        for table in (
            formats.INT5_MIN,
            formats.INT3_SUPER,
            formats.INT8_HALVES,
            formats.INT12,
        )
    ],
    reads=Reads.LOOKED_UP,
)
