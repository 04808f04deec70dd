"""An output head in two parts: approximate logits first, and exact ones where they may matter.

A format of matrices with a `split` is read in two parts: `linear_coarse` computes approximate
outputs from the upper bits of the integers and activations of 8 bits. To the outputs that may
matter, `linear_refined` adds the products of the lower bits. Before that, outputs near the largest
are replaced by products with activations of 16 bits. For one row, `linear_coarse` computes both
products at once; for several, `linear_refined` computes the second product where it is needed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import require_rows, rounded, steps
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.quantized_products import (
    format_of,
    linear_quantized,
    product_kernel,
    sample_matrix,
    some_outputs,
)
from hearthd.models.dsl.matrix_format import FORMATS, ROWS
from hearthd.models.dsl.matrix_values import quantized_product
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = [
    "ALL",
    "ROUNDED_MARGIN",
    "linear_coarse",
    "linear_refined",
    "parts_of",
    "two_part_head",
]

# Logits that are this much below the largest, in nats, may have activations of 8 bits, whose error
# has a standard deviation of 0.05. With 7, Gemma 3's distributions on texts move by a KL divergence
# of 0.00005, and a step computes 1.2 % of the outputs again.
ROUNDED_MARGIN = 7.0
# A share of rows that are refined has a bit for each of its blocks (kernels/product/refined.h).
_SHARE_BLOCKS = 64
# A row with this margin, or a larger one, has no approximate logits.
ALL = 2**20


def two_part_head(
    x: Tensor,
    margin: Tensor,
    arrays: tuple[Tensor, ...],
    matrix_format: MatrixFormat,
    *,
    outputs: int | None = None,
    cap: float | None = None,
) -> Tensor:
    """x W^T for x f32 (M, K) and a matrix W (N, K) in two parts: (M, N), some of it approximate.

    With `outputs`, W are the first rows of the matrix. With `cap`, logits are what `f.soft_cap`
    makes of outputs.

    Outputs whose logits are more than ROUNDED_MARGIN below the largest of their row are computed
    from activations of 8 bits, and more than the row's `margin`, i32 (M,), below it also without
    the lower part, unless they share a block of sixteen with a larger one; so most of the lower
    part is never read. With a margin of ALL or more, all outputs of the row are exact.
    """
    split = matrix_format.split
    assert split is not None, matrix_format.name
    lower, upper = parts_of(arrays, matrix_format)
    of_upper: Attrs = {"matrix_format": split.upper.name}
    has_fine = x.shape[0] == 1
    is_exact = ops.compare(margin, ops.full_like(margin, ALL), direction="GE")
    exact = ops.convert(is_exact, dtype=DType.I32)
    coarse = linear_coarse(x, exact, *upper, fine=has_fine, **of_upper, **some_outputs(outputs))
    approximate = f.narrow(coarse, 0, 0, 1) if has_fine else coarse
    largest = ops.reduce_max(approximate, axes=(1,))

    def below(nats: Tensor) -> Tensor:
        return largest - nats if cap is None else _far_below(largest, nats, cap)

    nats = ops.convert(margin, dtype=DType.F32)
    near = below(ops.minimum(nats, ops.full_like(nats, ROUNDED_MARGIN)))
    # Rows with exact logits have activations of 16 bits from the start.
    reached = ops.select(is_exact, ops.full_like(near, math.inf), near)
    if has_fine:
        with_16_bits = _in_blocks(approximate, f.narrow(coarse, 0, 1, 2), reached)
    else:
        with_16_bits = linear_refined(approximate, x, reached, *upper, replaces=True, **of_upper)
    of_lower: Attrs = {"matrix_format": split.lower.name, "step": split.step}
    return linear_refined(with_16_bits, x, below(nats), *lower, **of_lower)


def parts_of(
    arrays: tuple[Tensor, ...], matrix_format: MatrixFormat
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The arrays of two matrices: of the lower bits, and of the upper bits."""
    lower_start = min(plane.start for plane in matrix_format.planes)
    by_plane = dict(zip(matrix_format.planes, arrays, strict=False))
    (lower,) = (array for plane, array in by_plane.items() if plane.start == lower_start)
    (upper,) = (array for plane, array in by_plane.items() if plane.start > lower_start)
    factors = arrays[len(matrix_format.planes) :]
    return (lower, *factors), (upper, *factors)


def _in_blocks(outputs: Tensor, others: Tensor, threshold: Tensor) -> Tensor:
    """Outputs (M, N), replaced by `others` in some blocks of sixteen.

    In each replaced block, one of the outputs is at least the threshold of its row, (M,).
    """
    shape = (outputs.shape[0], outputs.shape[1] // ROWS, ROWS)
    largest = ops.reduce_max(ops.reshape(outputs, shape=shape), axes=(2,))
    limit = f.along_axes(threshold, largest, (1,))
    reached = ops.compare(largest, limit, direction="GE")
    chosen = ops.broadcast(reached, shape=shape, axes=(0, 1))
    return ops.select(ops.reshape(chosen, shape=outputs.shape), others, outputs)


def _flagged(exact: Tensor) -> Tensor:
    return ops.compare(exact, ops.full_like(exact, 0), direction="GT")


def _far_below(largest: Tensor, nats: Tensor, cap: float) -> Tensor:
    """Outputs that become a logit this many nats below the logit that `largest` becomes.

    -inf if all logits are nearer than that. Atanh(y) is (log(1 + y) - log(1 - y)) / 2.
    """
    share = (f.soft_cap(largest, cap=cap) - nats) * (1 / cap)
    lowest = ops.full_like(share, -1 + 1e-6)
    inside = ops.maximum(share, lowest)
    far_below = (ops.log_plus_one(inside) - ops.log_plus_one(-inside)) * (cap / 2)
    is_inside = ops.compare(share, lowest, direction="GT")
    return ops.select(is_inside, far_below, ops.full_like(share, -math.inf))


# --- linear_coarse


def _linear_coarse(
    x: Tensor,
    exact: Tensor,
    *upper: Tensor,
    matrix_format: str,
    outputs: int | None = None,
    fine: bool = False,
) -> Tensor:
    with_16_bits, with_8_bits = rounded(x, steps(FORMATS[matrix_format], 16)), rounded(x, 1)
    is_exact = ops.broadcast(_flagged(exact), shape=x.shape, axes=(0,))
    rows = ops.select(is_exact, with_16_bits, with_8_bits)
    if fine:
        rows = ops.concatenate(rows, with_16_bits, axis=0)
    product = quantized_product(rows, *upper, matrix_format=matrix_format)
    return product if outputs is None else f.narrow(product, 1, 0, outputs)


def _coarse_limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[0])
    flags = TensorType((types[0].shape[0],), DType.I32)
    require(types[1] == flags, f"flags {flags}")
    format_of(attrs).require(types[2:])
    outputs = attrs.get("outputs")
    require(outputs is None or outputs % ROWS == 0, f"a multiple of {ROWS} outputs")
    require(types[0].shape[0] == 1 or not attrs.get("fine"), "one row with `fine`")


def _coarse_kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    kind = "linear_coarse_and_fine" if attrs.get("fine") else "linear_coarse"
    name = f"{kind}_{format_of(attrs).symbol}"
    return product_kernel(name, types, result.shape[1], {}, matrix=2)


def _coarse_sample(
    rng: np.random.Generator,
    matrix_format: MatrixFormat,
    outputs: int,
    attrs: Mapping[str, int],
    exact: tuple[int, ...] = (0, 1, 0),
) -> Sample:
    rows = np.array(exact, np.int32)
    inputs = (normal(rng, len(rows), 32), rows, *sample_matrix(rng, matrix_format, outputs, 32))
    return Sample(inputs, {"matrix_format": matrix_format.name, **attrs})


linear_coarse: Fused = Fused(
    name="linear_coarse",
    doc="Rows (M, K), rounded to 8 bits per group of 32 columns, or to 16 if the row's flag, i32 "
    "(M,), is above 0, times a matrix (N, K) of integers of a `matrix_format`, or its first "
    "`outputs` rows. With `fine`, for one row only, the result is (2, N): this product, and the "
    "product of the row rounded to 16 bits.",
    reference=_linear_coarse,
    limits=_coarse_limits,
    kernel=_coarse_kernel,
    samples=lambda rng: [
        _coarse_sample(rng, FORMATS["int8-g32-upper"], 16, {}),
        _coarse_sample(rng, FORMATS["int6-g16-s256-upper"], 32, {"outputs": 16}),
        _coarse_sample(rng, FORMATS["int8-g32-upper"], 48, {"fine": True}, (0,)),
    ],
)


# --- linear_refined


def _linear_refined(
    approximate: Tensor,
    x: Tensor,
    threshold: Tensor,
    *matrix: Tensor,
    matrix_format: str,
    step: float = 1.0,
    replaces: bool = False,
) -> Tensor:
    rows = rounded(x, steps(FORMATS[matrix_format], 16))
    product = quantized_product(rows, *matrix, matrix_format=matrix_format)
    if approximate.shape != product.shape:
        product = f.narrow(product, 1, 0, approximate.shape[1])
    if step != 1:
        product = product * step
    return _in_blocks(approximate, product if replaces else approximate + product, threshold)


def _refined_in_numpy(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    """As `_linear_refined`; multiplies the blocks that reach a threshold and no others."""
    approximate, x, threshold, *matrix = arrays
    result = approximate.reshape(len(approximate), -1, ROWS).copy()
    reached = result.max(axis=2) >= threshold[:, np.newaxis]
    blocks = np.flatnonzero(reached.any(axis=0))
    if blocks.size:
        some = (x, *(array[blocks] for array in matrix))
        product = linear_quantized.evaluate(some, {"matrix_format": attrs["matrix_format"]})
        product = product.reshape(len(x), len(blocks), ROWS) * x.dtype.type(attrs.get("step", 1.0))
        old = result[:, blocks]
        new = product if attrs.get("replaces") else old + product
        result[:, blocks] = np.where(reached[:, blocks, np.newaxis], new, old)
    return result.reshape(approximate.shape)


def _limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[1])
    format_of(attrs).require(types[3:])


def _kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    name = f"linear_refined_{format_of(attrs).symbol}"
    outputs = result.shape[1]
    product = product_kernel(name, types[1:], outputs, {}, matrix=2, largest=_SHARE_BLOCKS)
    # It reads few blocks of the matrix, and a larger share has no bits for its blocks.
    scalars = (attrs.get("step", 1.0),)
    return replace(product, private=(), joins=False, scalars=scalars, in_place=True)


def _sample(
    rng: np.random.Generator,
    matrix_format: MatrixFormat,
    outputs: int,
    step: float = 1.0,
    *,
    replaces: bool = False,
) -> Sample:
    approximate = normal(rng, 3, outputs)
    # Some blocks of the first row if it has several, none of the second, all of the third.
    threshold = np.array([np.sort(approximate[0])[-3], 100, -100], np.float32)
    arrays = sample_matrix(rng, matrix_format, outputs, 32)
    attrs = {"matrix_format": matrix_format.name, "step": step, "replaces": replaces}
    return Sample((approximate, normal(rng, 3, 32), threshold, *arrays), attrs)


_INT2 = FORMATS["int2-g16-s256"]

linear_refined: Fused = Fused(
    name="linear_refined",
    doc="Adds what is missing to products (M, N) that were computed from the upper bits of a "
    "matrix. If one of a block of sixteen outputs reaches its row's threshold, `step` times the "
    "product of the lower bits, a matrix of a `matrix_format`, is added to all sixteen. With "
    "`replaces`, the product, of the upper bits, replaces all sixteen.",
    reference=_linear_refined,
    in_numpy=_refined_in_numpy,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: [
        _sample(rng, formats.INT4, 48),
        _sample(rng, _INT2, 16),
        _sample(rng, formats.INT4, 16, 1 / 16),
        _sample(rng, FORMATS["int8-g32-upper"], 48, replaces=True),
    ],
)
