"""Products of rows with the matrices of their experts; other experts are not read.

A kernel computes the rows of an expert together, so that it reads each matrix once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl.activations import bits_of, require_bits, require_rows, rounded, steps
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.functions.products import by_expert, routed_product
from hearthd.models.dsl.fused.quantized_products import (
    format_of,
    linear_quantized,
    sample_matrix,
)
from hearthd.models.dsl.kernel_sources import variant
from hearthd.models.dsl.matrix_format import FORMATS, ROWS
from hearthd.models.dsl.matrix_values import dequantized
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["routed_linear", "routed_linear_quantized"]

# Workgroups of a product, if it has enough experts and blocks of sixteen outputs.
_MIN_WORKGROUPS = 8
# Of more rows, workgroups share the experts, because each rounds the rows that it multiplies.
_FEW_ROWS = 64
_MAX_EXPERT_SHARES = 32


def _routed_limits(x: TensorType, chosen: TensorType, attrs: Attrs) -> None:
    require_rows(x)
    require(
        chosen == TensorType((chosen.size,), DType.I32) and chosen.size % x.shape[0] == 0,
        "experts i32 (M,), as many for each row",
    )
    require(attrs["experts"] >= 1, "at least one expert")


def _routed_kernel(function: str, types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    """A kernel whose workgroups share the experts, then blocks of sixteen outputs.

    The experts of few rows are shared in turns, so that workgroups have as many each and read the
    matrix of an expert without gaps: memory is faster then.
    """
    rows, outputs = result.shape
    experts = attrs["experts"]
    has_few = rows <= _FEW_ROWS
    each = experts if has_few else -(-experts // _MAX_EXPERT_SHARES)
    stride = min(rows, experts, _MAX_EXPERT_SHARES) if has_few else 1
    shares = -(-experts // each) * stride
    blocks = -(-outputs // ROWS)
    share = -(-blocks // -(-_MIN_WORKGROUPS // shares))
    columns = types[0].shape[1]
    return Kernel(
        function=function,
        sizes=(share, each, stride, rows, rows // types[0].shape[0], outputs, columns, experts),
        workgroups=shares * -(-blocks // share),
    )


def _chosen(*experts: int) -> Array:
    return np.array(experts, np.int32)


# --- f32 and bf16


def _limits(types: Types, attrs: Attrs) -> None:
    x, chosen, weight = types
    _routed_limits(x, chosen, attrs)
    require(
        weight.rank == 2 and weight.dtype in (x.dtype, DType.BF16),
        "a weight of the dtype of x, or bf16",
    )


routed_linear: Fused = Fused(
    name="routed_linear",
    doc="`f.routed_linear`: rows (M / C, K) times the matrices of their C experts each.",
    reference=f.routed_linear.op.reference,
    in_numpy=f.routed_linear.op.in_numpy,
    limits=_limits,
    kernel=lambda types, result, attrs: _routed_kernel(
        f"routed_linear_{types[2].dtype.label}", types, result, attrs
    ),
    samples=lambda rng: [
        Sample((normal(rng, 1, 5), _chosen(1), normal(rng, 6, 5)), {"experts": 2}),
        Sample((normal(rng, 2, 18), _chosen(2, 0, 2, 1), normal(rng, 12, 18)), {"experts": 3}),
    ],
)


# --- integers


def _routed_linear_quantized(
    x: Tensor,
    chosen: Tensor,
    *arrays: Tensor,
    matrix_format: str,
    experts: int,
    activation_bits: int = 16,
) -> Tensor:
    stored = FORMATS[matrix_format]

    def matrix(*arrays: Tensor) -> Tensor:
        return dequantized(arrays, stored, x.dtype)

    rows = rounded(x, steps(stored, activation_bits))
    return routed_product(rows, chosen, arrays, experts, matrix)


def _quantized_by_expert(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    product_attrs = {name: value for name, value in attrs.items() if name != "experts"}

    def product(x: Array, *stored: Array) -> Array:
        return linear_quantized.evaluate((x, *stored), product_attrs)

    return by_expert(arrays, attrs, product)


def _quantized_limits(types: Types, attrs: Attrs) -> None:
    x, chosen, *arrays = types
    _routed_limits(x, chosen, attrs)
    require_bits(attrs)
    format_of(attrs).require(tuple(arrays))
    experts = attrs["experts"]
    require(
        arrays[0].shape[0] % experts == 0,
        f"matrices of {experts} experts with a multiple of {ROWS} rows each",
    )


routed_linear_quantized: Fused = Fused(
    name="routed_linear_quantized",
    doc="Rows (M / C, K), rounded to 16 bits per group of 32 columns, or to 12 beside integers "
    "of 4 bits, or to 8 (`activation_bits`), times the matrices of their C experts, which are the "
    "rows (experts * N, K) of a matrix of integers of a `matrix_format`.",
    reference=_routed_linear_quantized,
    in_numpy=_quantized_by_expert,
    limits=_quantized_limits,
    kernel=lambda types, result, attrs: _routed_kernel(
        variant(f"routed_linear_{format_of(attrs).symbol}", bits_of(attrs)), types, result, attrs
    ),
    samples=lambda rng: [
        Sample(
            (normal(rng, rows, 32), _chosen(0, 1, 0), *sample_matrix(rng, matrix_format, 32, 32)),
            {"matrix_format": matrix_format.name, "experts": 2, **more},
        )
        for rows, matrix_format, more in (
            (3, formats.INT8, {"activation_bits": 8}),
            (1, formats.INT5_MIN, {}),
            (3, formats.INT6_SUPER, {}),
            (3, formats.INT12, {}),
        )
    ],
)
