"""An output head in two parts, and an embedding table: matrices of int8 in groups, in halves.

`linear_upper` computes approximate outputs, from the upper halves of the weights. To those that may
matter `linear_refined` adds the products of the lower halves. Both also take integers of 6 bits,
whose upper part has four, and of 12, whose upper part has eight: (N / 16, K / 32, 8, 64).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops, packing
from hearthd.models.dsl.activations import STEPS, require_rows, rounded, steps
from hearthd.models.dsl.composite import Fused, composite
from hearthd.models.dsl.fused.grouped_products import (
    dequantized,
    product_kernel,
    require_matrix,
    sample_matrix,
    times_transposed,
)
from hearthd.models.dsl.fused.small_products import INT6, INT12, dequantized_small, sample_small
from hearthd.models.dsl.ops.record import Kernel, Reads, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.packing import SmallForm
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

    # (generator, N, K) -> upper part, lower part, scale
    _Parts = Callable[[np.random.Generator, int, int], tuple[Array, Array, Array]]

__all__ = ["LOGIT_MARGIN", "embedding_halved", "linear_refined", "linear_upper", "two_part_head"]

# Logits that are this much below the largest, in nats, may be approximate. With 10, Gemma 3's
# distributions on texts move by a KL divergence of 0.0015, with 12 by 0.0004, and a step refines
# 4 or 9 % of the outputs.
LOGIT_MARGIN = 11.0

_HALF_QUADS = packing.QUADS // 2
# By the bits of a matrix in two parts: its form, None for int8 in halves, and the form of its lower
# part, whose zero is the middle of the integers that have one upper part.
_FORMS = {
    6: (INT6, SmallForm(bits=2, columns=INT6.columns)),
    8: (None, SmallForm(bits=4)),
    12: (INT12, SmallForm(bits=4)),  # its step is a sixteenth of the upper part's
}


def two_part_head(x: Tensor, exact: Tensor, upper: Tensor, lower: Tensor, scale: Tensor) -> Tensor:
    """x W^T for x f32 (M, K) and a matrix W (N, K) in two parts: (M, N), some of it approximate.

    Outputs that are more than LOGIT_MARGIN below the largest of their row are approximate, unless
    they share a block of sixteen with a larger one; so most of the lower part is never read. All
    are exact in rows for which `exact`, i32 (M,), is not 0.
    """
    approximate = linear_upper(x, upper, scale)
    largest = ops.reduce_max(approximate, axes=(1,))
    flagged = ops.compare(exact, ops.full_like(exact, 0), direction="NE")
    everything = ops.full_like(largest, -math.inf)
    threshold = ops.select(flagged, everything, largest + -LOGIT_MARGIN)
    form = form_of_parts(upper.type, scale.type)
    bits = form.bits if form else 8
    return linear_refined(x, lower, scale, approximate, threshold, bits=bits)


def whole(upper: Tensor, lower: Tensor) -> Tensor:
    """The integers i8 (..., 8, 64) of two halves i8 (..., 4, 64)."""
    four, low = ops.full_like(upper, 4), ops.full_like(upper, 0x0F)
    first = ops.bitwise_or(ops.shift_left(upper, four), ops.bitwise_and(lower, low))
    high = ops.bitwise_and(upper, ops.full_like(upper, -0x10))
    second = ops.bitwise_or(high, ops.shift_right(lower, four))
    return ops.concatenate(first, second, axis=2)


def middle(upper: Tensor) -> Tensor:
    """The integers i8 (..., 8, 64) in the middle of those that have an upper half."""
    return whole(upper, ops.full_like(upper, packing.MIDDLE))


@composite(blocks=True)
def upper_product(x: Tensor, upper: Tensor, scale: Tensor) -> Tensor:
    """x W^T for x (M, K) and W (N, K) in two parts, from the upper one alone."""
    form = form_of_parts(upper.type, scale.type)
    if form is INT6:
        low = ops.full(
            shape=(*upper.shape[:2], form.low_bits, packing.LANES),
            dtype=DType.I8,
            value=packing.MIDDLES_OF_TWO,
        )
        return times_transposed(x, dequantized_small((low, upper, scale), form, x.dtype))
    integers = upper if form is INT12 else middle(upper)
    return times_transposed(x, dequantized(integers, scale, x.dtype))


@composite(blocks=True)
def lower_product(x: Tensor, lower: Tensor, scale: Tensor, *, bits: int) -> Tensor:
    """x W^T for x (M, K) and the lower part of W (N, K), of `bits` in two parts."""
    _, form = _FORMS[bits]
    product = times_transposed(x, dequantized_small((lower, scale), form, x.dtype))
    return product * (1 / 16) if bits == INT12.bits else product


def form_of_parts(upper: TensorType, scale: TensorType) -> SmallForm | None:
    """The form of integers in two parts, or None for int8 in halves; raises TypeRuleError."""
    require(upper.rank == 4 and scale.rank == 3, "an upper part of rank 4 and a scale of rank 3")
    if upper.shape[2] == packing.QUADS:
        return INT12
    return INT6 if scale.shape[1] == 2 * upper.shape[1] else None


def _require_arrays(form: SmallForm, arrays: dict[str, TensorType]) -> None:
    blocks, groups = arrays["scale"].shape[0], next(iter(arrays.values())).shape[1]
    shapes = form.shapes(blocks * packing.ROWS, groups * packing.GROUP)
    for name, type_ in arrays.items():
        expected = TensorType(shapes[name], DType.F16 if name == "scale" else DType.I8)
        require(type_ == expected, f"{name} {expected}")


def _kernel(op: str, types: Types, form: SmallForm | None, result: TensorType) -> Kernel:
    suffix = f"_{form.name}" if form else ""
    return product_kernel(f"{op}{suffix}", types, result.shape[1], {})


# --- linear_upper


def _linear_upper(x: Tensor, upper: Tensor, scale: Tensor) -> Tensor:
    return upper_product(rounded(x, STEPS), upper, scale)


def _upper_limits(types: Types, _: Attrs) -> None:
    x, upper, scale = types
    require_rows(x)
    form = form_of_parts(upper, scale)
    if form is None:
        require_matrix((upper,), scale, _HALF_QUADS)
    else:
        _require_arrays(form, {"high": upper, "scale": scale})


def _halves(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    weight, scale = sample_matrix(rng, rows, columns)
    return (*packing.split(weight), scale)


def _parts_of(form: SmallForm) -> _Parts:
    def parts(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
        lower, upper, scale = sample_small(rng, form, rows, columns)
        return upper, lower, scale

    return parts


def _upper_sample(rng: np.random.Generator, parts: _Parts, rows: int) -> Sample:
    upper, _, scale = parts(rng, 16, 32)
    return Sample((normal(rng, rows, 32), upper, scale))


linear_upper: Fused = Fused(
    name="linear_upper",
    doc="Rows (M, K), rounded to 16 bits per group, times the upper halves of a matrix (N, K), or "
    "the upper 4 bits of 6: each integer counts as the middle of those with its upper part. Or "
    "times the upper 8 bits of 12.",
    reference=_linear_upper,
    limits=_upper_limits,
    kernel=lambda types, result, _: _kernel(
        "linear_upper", types, form_of_parts(*types[1:]), result
    ),
    samples=lambda rng: [
        _upper_sample(rng, _halves, 10),
        _upper_sample(rng, _parts_of(INT6), 1),
        _upper_sample(rng, _parts_of(INT12), 2),
    ],
)


# --- linear_refined


def _linear_refined(
    x: Tensor, lower: Tensor, scale: Tensor, approximate: Tensor, threshold: Tensor, *, bits: int
) -> Tensor:
    _, form = _FORMS[bits]
    added = lower_product(rounded(x, steps(form.bits, 16)), lower, scale, bits=bits)
    rows, outputs = added.shape
    shape = (rows, outputs // packing.ROWS, packing.ROWS)
    largest = ops.reduce_max(ops.reshape(approximate, shape=shape), axes=(2,))
    limit = f.along_axes(threshold, largest, (1,))
    reached = ops.compare(largest, limit, direction="GE")
    chosen = ops.broadcast(reached, shape=shape, axes=(0, 1))
    exact = approximate + added
    return ops.select(ops.reshape(chosen, shape=exact.shape), exact, approximate)


def _refined_limits(types: Types, attrs: Attrs) -> None:
    x, lower, scale = types[:3]
    require_rows(x)
    require(attrs["bits"] in _FORMS, f"bits of {tuple(_FORMS)}")
    _, form = _FORMS[attrs["bits"]]
    _require_arrays(form, {"low": lower, "scale": scale})


def _refined_kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    form, _ = _FORMS[attrs["bits"]]
    # It reads few blocks of the matrix.
    return replace(_kernel("linear_refined", types, form, result), own=())


def _refined_sample(rng: np.random.Generator, parts: _Parts, outputs: int, bits: int) -> Sample:
    _, lower, scale = parts(rng, outputs, 32)
    approximate = normal(rng, 3, outputs)
    # Some blocks of the first row if it has several, none of the second, all of the third.
    threshold = np.array([np.sort(approximate[0])[-3], 100, -100], np.float32)
    return Sample((normal(rng, 3, 32), lower, scale, approximate, threshold), {"bits": bits})


linear_refined: Fused = Fused(
    name="linear_refined",
    doc="Approximate products (M, N) of the upper part of a matrix of 6, 8 or 12 `bits`. In each "
    "block of sixteen outputs of which one reaches its row's threshold, plus those of the lower "
    "part.",
    reference=_linear_refined,
    limits=_refined_limits,
    kernel=_refined_kernel,
    samples=lambda rng: [
        _refined_sample(rng, _halves, 48, 8),
        *(_refined_sample(rng, _parts_of(form), 16, form.bits) for form in (INT6, INT12)),
    ],
)


# --- embedding_halved


def _embedding_halved(ids: Tensor, upper: Tensor, lower: Tensor, scale: Tensor) -> Tensor:
    block = ops.shift_right(ids, ops.full_like(ids, packing.ROWS.bit_length() - 1))
    row = ops.bitwise_and(ids, ops.full_like(ids, packing.ROWS - 1))
    halves = (ops.gather(half, block, axis=0) for half in (upper, lower))
    rows = dequantized(whole(*halves), ops.gather(scale, block, axis=0), DType.F32)
    first = ops.iota(shape=ids.shape, axis=0, dtype=DType.I32) * packing.ROWS
    return ops.gather(rows, first + row, axis=0)


def _embedding_limits(types: Types, _: Attrs) -> None:
    ids, upper, lower, scale = types
    require(ids.dtype is DType.I32 and ids.rank == 1, "ids i32 (M,)")
    require_matrix((upper, lower), scale, _HALF_QUADS)


embedding_halved: Fused = Fused(
    name="embedding_halved",
    doc="Rows of a matrix (V, E) in groups and in halves, by their ids: f32 (M, E).",
    reference=_embedding_halved,
    limits=_embedding_limits,
    kernel=lambda types, result, _: Kernel(
        function="embedding_halved", sizes=(result.shape[1],), workgroups=types[0].size
    ),
    samples=lambda rng: [Sample((np.array([13, 0, 31], np.int32), *_halves(rng, 32, 32)))],
    reads=Reads.LOOKED_UP,
)
