"""Products of rows with the matrices of their experts, of which only those are read.

A kernel computes the rows of an expert together, so that it reads each matrix once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import packing
from hearthd.models.dsl.activations import (
    bits_of,
    kernel_name,
    require_bits,
    require_rows,
    rounded,
    steps,
)
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.functions.products import routed_product
from hearthd.models.dsl.fused.grouped_products import dequantized, require_matrix, sample_matrix
from hearthd.models.dsl.fused.small_products import FORMS, dequantized_small, form_of, sample_small
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["linear_routed", "linear_routed_grouped", "linear_routed_small"]

# Workgroups of a product, if it has so many blocks of sixteen outputs.
_MIN_WORKGROUPS = 8


def _routed_limits(x: TensorType, chosen: TensorType, attrs: Attrs) -> None:
    require_rows(x)
    require(chosen == TensorType((x.shape[0],), DType.I32), "experts i32 (M,)")
    require(attrs["experts"] >= 1, "at least one expert")


def _routed_kernel(function: str, types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    """A kernel whose workgroups share the blocks of sixteen outputs, each of all rows."""
    rows, outputs = result.shape
    blocks = -(-outputs // packing.ROWS)
    share = -(-blocks // _MIN_WORKGROUPS)
    return Kernel(
        function=function,
        sizes=(share, rows, outputs, types[0].shape[1], attrs["experts"]),
        workgroups=-(-blocks // share),
    )


def _require_blocks(integers: TensorType, attrs: Attrs) -> None:
    """Raise TypeRuleError unless no two experts share a block of sixteen rows."""
    experts = attrs["experts"]
    require(
        integers.shape[0] % experts == 0,
        f"matrices of {experts} experts with a multiple of {packing.ROWS} rows each",
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


linear_routed: Fused = Fused(
    name="linear_routed",
    doc="`f.routed_linear`: rows (M, K) times the matrices of their experts.",
    reference=f.routed_linear.op.reference,
    limits=_limits,
    kernel=lambda types, result, attrs: _routed_kernel(
        f"linear_routed_{types[2].dtype.label}", types, result, attrs
    ),
    samples=lambda rng: [
        Sample((normal(rng, 1, 5), _chosen(1), normal(rng, 6, 5)), {"experts": 2}),
        Sample((normal(rng, 4, 18), _chosen(2, 0, 2, 1), normal(rng, 12, 18)), {"experts": 3}),
    ],
)


# --- integers in groups


def _linear_routed_grouped(
    x: Tensor,
    chosen: Tensor,
    weight: Tensor,
    scale: Tensor,
    *,
    experts: int,
    activation_bits: int = 16,
) -> Tensor:
    def matrix(weight: Tensor, scale: Tensor) -> Tensor:
        return dequantized(weight, scale, x.dtype)

    rows = rounded(x, steps(8, activation_bits))
    return routed_product(rows, chosen, (weight, scale), experts, matrix)


def _grouped_limits(types: Types, attrs: Attrs) -> None:
    x, chosen, weight, scale = types
    _routed_limits(x, chosen, attrs)
    require_bits(attrs)
    require_matrix((weight,), scale, packing.QUADS)
    _require_blocks(weight, attrs)


linear_routed_grouped: Fused = Fused(
    name="linear_routed_grouped",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 8 (`activation_bits`), "
    "times the matrices of their experts, which are the rows (experts * N, K) of a matrix in "
    "groups.",
    reference=_linear_routed_grouped,
    limits=_grouped_limits,
    kernel=lambda types, result, attrs: _routed_kernel(
        kernel_name("linear_routed_grouped", bits_of(attrs)), types, result, attrs
    ),
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), _chosen(0), *sample_matrix(rng, 16, 32)), {"experts": 1}),
        Sample(
            (normal(rng, 3, 32), _chosen(0, 0, 0), *sample_matrix(rng, 16, 32)),
            {"experts": 1, "activation_bits": 8},
        ),
    ],
)


# --- integers of 4, 5, 6 or 12 bits in groups


def _linear_routed_small(
    x: Tensor,
    chosen: Tensor,
    *arrays: Tensor,
    bits: int,
    minimum: bool,
    experts: int,
    activation_bits: int = 16,
) -> Tensor:
    form = form_of(tuple(array.type for array in arrays), {"bits": bits, "minimum": minimum})

    def matrix(*arrays: Tensor) -> Tensor:
        return dequantized_small(arrays, form, x.dtype)

    rows = rounded(x, steps(bits, activation_bits))
    return routed_product(rows, chosen, arrays, experts, matrix)


def _small_limits(types: Types, attrs: Attrs) -> None:
    _routed_limits(types[0], types[1], attrs)
    require_bits(attrs)
    form_of(types[2:], attrs)
    _require_blocks(types[2], attrs)


linear_routed_small: Fused = Fused(
    name="linear_routed_small",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 12 beside integers of 4 "
    "bits, or to 8 (`activation_bits`), times the matrices of their experts, which are the rows "
    "(experts * N, K) of a matrix of integers of 4 to 6 or 12 bits.",
    reference=_linear_routed_small,
    limits=_small_limits,
    kernel=lambda types, result, attrs: _routed_kernel(
        kernel_name(f"linear_routed_{form_of(types[2:], attrs).name}", bits_of(attrs)),
        types,
        result,
        attrs,
    ),
    samples=lambda rng: [
        Sample(
            (normal(rng, 3, 32), _chosen(0, 1, 0), *sample_small(rng, form, 32, 32)),
            {"bits": form.bits, "minimum": form.minimum, "experts": 2, **more},
        )
        for form, more in zip(FORMS[2:], ({}, {"activation_bits": 8}, {}, {}), strict=True)
    ],
)
