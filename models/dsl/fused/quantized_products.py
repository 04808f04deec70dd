"""Products with matrices of integers, and lookups of their rows (models/dsl/matrix_format.py).

The compiler's own form of such a product is several times slower, and the more so the more rows
there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import bits_of, require_bits, require_rows, rounded, steps
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.kernel_sources import variant
from hearthd.models.dsl.matrix_format import FORMATS, GROUP, ROWS
from hearthd.models.dsl.matrix_packing import pack
from hearthd.models.dsl.matrix_values import dequantized, quantized_product
from hearthd.models.dsl.ops.record import Kernel, Reads, Sample, Scratch, equal_share, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["embedding_quantized", "linear_quantized"]

# Blocks of sixteen outputs and rows that one workgroup computes, and workgroups of a product. A
# share of many blocks begins with memory that was not fetched, and rounds rows, less often.
_MAX_BLOCKS, _MANY_BLOCKS, _MAX_ROWS, MIN_WORKGROUPS = 64, 256, 32, 8
# Activations of 8 bits are multiplied in half the time, so that rounding them twice matters; with a
# grid it matters more that many rows share what is looked up.
_MAX_SMALL_ROWS, _MAX_GRID_ROWS = 16, 64
# From this number of rows on, a kernel rounds them for all workgroups. Fewer are multiplied faster
# by weights that stay in registers.
_FEWEST_ROUNDED, _ROUNDING_WORKGROUPS = 32, 16
# The groups of a panel of rounded rows, and the f32 that a group takes, by the bits of activations
# (kernels/product/strips.h).
_PANEL, _CELL = 16, {8: 13, 16: 23}


def format_of(attrs: Attrs) -> MatrixFormat:
    """The format that a product's attribute `matrix_format` names; raises TypeRuleError."""
    name = attrs["matrix_format"]
    require(name in FORMATS, f"a matrix_format of {', '.join(FORMATS)}")
    return FORMATS[name]


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
    largest: int = _MANY_BLOCKS,
) -> Kernel:
    """A kernel whose workgroups share the rows and the blocks of sixteen outputs.

    `types` are its inputs' types: of x (M, K) and, from `matrix` on, of the arrays of a matrix.
    Each workgroup rounds its rows, so rows are divided first, and then blocks, until there are
    `workgroups` of them or one for each block. A share of all rows has at most `largest` blocks.
    """
    rows, columns = types[0].shape
    blocks, stored_blocks = outputs // ROWS, types[matrix].shape[0]
    activation_bits = bits_of(attrs)
    max_rows = _MAX_ROWS
    if activation_bits == 8:
        max_rows = _MAX_SMALL_ROWS if format_of(attrs).grid is None else _MAX_GRID_ROWS
    parts = -(-rows // max_rows)
    largest = largest if parts == 1 else _MAX_BLOCKS
    share = equal_share(blocks, workgroups=-(-workgroups // parts), largest=largest)
    counts = (
        type_.size // stored_blocks * share if type_.rank > 2 else 0 for type_ in types[matrix:]
    )
    return Kernel(
        function=variant(name, activation_bits),
        sizes=(share, min(rows, max_rows), rows, outputs, columns),
        workgroups=parts * -(-blocks // share),
        private=(*[0] * matrix, *counts) if parts == 1 else (),
        joins=parts == 1,
    )


def some_outputs(outputs: int | None) -> Attrs:
    """The attribute `outputs` of a product with the first rows of a matrix; empty for all rows."""
    return {} if outputs is None else {"outputs": outputs}


def _linear_quantized(
    x: Tensor,
    *arrays: Tensor,
    matrix_format: str,
    activation_bits: int = 16,
    outputs: int | None = None,
) -> Tensor:
    rows = rounded(x, steps(FORMATS[matrix_format], activation_bits))
    product = quantized_product(rows, *arrays, matrix_format=matrix_format)
    return product if outputs is None else f.narrow(product, 1, 0, outputs)


def _limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[0])
    require_bits(attrs)
    format_of(attrs).require(types[1:])
    outputs = attrs.get("outputs")
    require(outputs is None or outputs % ROWS == 0, f"a multiple of {ROWS} outputs")


def _linear_kernel(types: Types, outputs: int, attrs: Attrs) -> Kernel:
    matrix_format, activation_bits = format_of(attrs), bits_of(attrs)
    kernel = product_kernel(f"linear_{matrix_format.symbol}", types, outputs, attrs)
    rows, columns = types[0].shape
    if rows < _FEWEST_ROUNDED or matrix_format.operand_bits > 8:
        return kernel
    share = equal_share(rows, workgroups=_ROUNDING_WORKGROUPS, largest=rows)
    rounding = Kernel(
        function=variant(f"round_rows_{matrix_format.symbol}", activation_bits),
        sizes=(share, rows, columns),
        workgroups=-(-rows // share),
    )
    panels = -(-columns // (_PANEL * GROUP))
    return replace(
        kernel,
        function=variant(f"linear_{matrix_format.symbol}_rounded", activation_bits),
        scratch=Scratch(kernel=rounding, size=rows * panels * _PANEL * _CELL[activation_bits]),
    )


linear_quantized: Fused = Fused(
    name="linear_quantized",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 12 beside integers of 4 "
    "bits, or to 8 (`activation_bits`), times a matrix (N, K) of integers of a `matrix_format`, or "
    "its first `outputs` rows.",
    reference=_linear_quantized,
    limits=_limits,
    kernel=lambda types, result, attrs: _linear_kernel(types, result.shape[1], attrs),
    rows_apart=True,
    samples=lambda rng: [
        Sample(
            (
                normal(rng, rows, columns),
                *sample_matrix(rng, matrix_format, 1024 // columns, columns),
            ),
            {"matrix_format": matrix_format.name, **more},
        )
        for rows, columns, matrix_format, more in (
            (1, 64, formats.INT8, {}),
            (11, 64, formats.INT2_SUPER_MIN, {"activation_bits": 8}),
            (2, 32, formats.INT12, {"outputs": 16}),
            (2, 64, formats.IQ2_XS, {}),
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
