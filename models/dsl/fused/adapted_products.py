"""Products with a matrix of integers to which the terms of LoRA adapters are added at once.

With few rows a product mostly computes, and adapters mostly wait for memory. So a product fetches
the factors B that it needs itself, and a part of the factors A that the next terms need.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl.activations import bits_of
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.adapter_products import LANES, TERMS, adapter_sizes, lora_up, rank_of
from hearthd.models.dsl.fused.quantized_products import (
    MIN_WORKGROUPS,
    format_of,
    linear_quantized,
    product_kernel,
    sample_matrix,
)
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["linear_adapted"]

# Rows that share one pass over the weights.
_MAX_ROWS = 8
# Each workgroup rounds all rows, which takes a fifth of the time of eight workgroups of eight rows.
_MANY_ROWS, _FEW_WORKGROUPS = 5, 4
# The inputs before the arrays of the matrix.
_BEFORE = 7


def _linear_adapted(
    x: Tensor,
    terms: Tensor,
    chosen: Tensor,
    scales: Tensor,
    b: Tensor,
    b_scale: Tensor,
    _soon: Tensor,
    *arrays: Tensor,
    matrix_format: str,
    sources: tuple[int, ...],
    first: int,
    activation_bits: int = 16,
) -> Tensor:
    y = linear_quantized(x, *arrays, matrix_format=matrix_format, activation_bits=activation_bits)
    return lora_up(y, terms, chosen, scales, b, b_scale, sources=sources, first=first)


def _up(types: Types, attrs: Attrs) -> tuple[Types, Attrs]:
    """The types and attributes of `lora_up`."""
    x, arrays = types[0], types[_BEFORE:]
    y = x.with_shape(x.shape[0], arrays[0].shape[0] * LANES)
    return (y, *types[1:6]), {"sources": attrs["sources"], "first": attrs["first"]}


def _limits(types: Types, attrs: Attrs) -> None:
    x, b, soon, arrays = types[0], types[4], types[6], types[_BEFORE:]
    product = {"matrix_format": attrs["matrix_format"], "activation_bits": bits_of(attrs)}
    linear_quantized.limits((x, *arrays), product)
    lora_up.limits(*_up(types, attrs))
    require(x.shape[0] <= _MAX_ROWS, f"at most {_MAX_ROWS} rows")
    require(b.dtype is DType.I8, "factors i8")
    require(all(rows % LANES == 0 for rows in attrs["sources"]), f"matrices of {LANES} i rows")
    require(soon.rank == 3 and soon.dtype is DType.I8, "the next factors A, i8 (P, T, K)")
    require(soon.shape[0] == b.shape[0], "as many places in all factors")


def _kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    x, terms, b, soon = types[0], types[1], types[4], types[6]
    workgroups = _FEW_WORKGROUPS if x.shape[0] >= _MANY_ROWS else MIN_WORKGROUPS
    name, outputs = f"linear_{format_of(attrs).symbol}_adapted", result.shape[1]
    product = product_kernel(name, types, outputs, attrs, matrix=_BEFORE, workgroups=workgroups)
    share, _, *sizes = product.sizes
    # Products that read the same x come before the same factors A: each fetches its part.
    matrices, start = terms.shape[1] // rank_of(b), attrs["first"]
    ends = (start, start + len(attrs["sources"]))
    fetched = (soon.shape[1] * end // matrices for end in ends)
    return dataclasses.replace(
        product,
        sizes=(share, *sizes, *adapter_sizes(*_up(types, attrs)), *soon.shape[1:], *fetched),
    )


def _sample(
    rng: np.random.Generator,
    rows: int,
    sources: tuple[int, ...],
    matrix_format: MatrixFormat,
    **more: int,
) -> Sample:
    """Rows with a place each, of two places, and terms of rank 4 of a matrix more."""
    outputs, terms, columns = sum(sources), TERMS * (1 + len(sources)), 32
    blocks = outputs // LANES

    def integers(*shape: int) -> Array:
        return rng.integers(-127, 128, shape, dtype=np.int8)

    return Sample(
        (
            normal(rng, rows, columns), normal(rng, rows, terms),
            np.arange(rows, dtype=np.int32) % 3, normal(rng, rows),
            integers(2, blocks, 1, LANES * TERMS),
            normal(rng, 2, blocks, LANES).astype(np.float16),
            integers(2, 5, 19), *sample_matrix(rng, matrix_format, outputs, columns),
        ),
        {"matrix_format": matrix_format.name, **more, "sources": sources, "first": 1},
    )  # fmt: skip


linear_adapted: Fused = Fused(
    name="linear_adapted",
    doc="`linear_quantized` of at most 8 rows, then `lora_up`. Meanwhile a part of the factors A "
    "(P, T, K) that are read next is fetched.",
    reference=_linear_adapted,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: [
        _sample(rng, 2, (16, 16), formats.INT4_MIN),
        _sample(rng, 6, (16,), formats.INT8),
        _sample(rng, 3, (16,), formats.INT4_MIN, activation_bits=8),
    ],
)
