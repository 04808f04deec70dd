"""An output head in two parts: approximate logits first, and exact ones where they may matter.

A format of matrices with a `split` is read in two parts: `linear_quantized` computes approximate
outputs from the upper bits of the integers, and `linear_refined` adds the products of the lower
bits to the outputs that may matter.
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
from hearthd.models.dsl.ops.record import Kernel, Sample
from hearthd.models.dsl.ops.samples import normal

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Attrs, Types
    from hearthd.models.dsl.types import TensorType

__all__ = ["LOGIT_MARGIN", "linear_refined", "two_part_head"]

# Logits that are this much below the largest, in nats, may be approximate. With 10, Gemma 3's
# distributions on texts move by a KL divergence of 0.0015, with 12 by 0.0004, and a step refines
# 4 or 9 % of the outputs.
LOGIT_MARGIN = 11.0


def two_part_head(
    x: Tensor,
    exact: Tensor,
    arrays: tuple[Tensor, ...],
    matrix_format: MatrixFormat,
    *,
    outputs: int | None = None,
    cap: float | None = None,
) -> Tensor:
    """x W^T for x f32 (M, K) and a matrix W (N, K) in two parts: (M, N), some of it approximate.

    With `outputs`, W are the first rows of the matrix. With `cap`, logits are what `f.soft_cap`
    makes of outputs.

    Outputs whose logits are more than LOGIT_MARGIN below the largest of their row are approximate,
    unless they share a block of sixteen with a larger one; so most of the lower part is never read.
    All are exact in rows for which `exact`, i32 (M,), is not 0.
    """
    split = matrix_format.split
    assert split is not None, matrix_format.name
    factors = arrays[len(matrix_format.planes) :]
    by_plane = dict(zip(matrix_format.planes, arrays, strict=False))
    lower_start = min(plane.start for plane in matrix_format.planes)
    (lower,) = (array for plane, array in by_plane.items() if plane.start == lower_start)
    (upper,) = (array for plane, array in by_plane.items() if plane.start > lower_start)
    approximate = linear_quantized(
        x, upper, *factors, matrix_format=split.upper.name, **some_outputs(outputs)
    )
    largest = ops.reduce_max(approximate, axes=(1,))
    flagged = ops.compare(exact, ops.full_like(exact, 0), direction="NE")
    everything = ops.full_like(largest, -math.inf)
    lowest = largest + -LOGIT_MARGIN if cap is None else _far_below(largest, cap)
    threshold = ops.select(flagged, everything, lowest)
    return linear_refined(
        approximate, x, threshold, lower, *factors, matrix_format=split.lower.name, step=split.step
    )


def _far_below(largest: Tensor, cap: float) -> Tensor:
    """Outputs that become a logit LOGIT_MARGIN below the logit that `largest` becomes.

    -inf if all logits are nearer than that. Atanh(y) is (log(1 + y) - log(1 - y)) / 2.
    """
    share = (f.soft_cap(largest, cap=cap) + -LOGIT_MARGIN) * (1 / cap)
    lowest = ops.full_like(share, -1 + 1e-6)
    inside = ops.maximum(share, lowest)
    far_below = (ops.log_plus_one(inside) - ops.log_plus_one(-inside)) * (cap / 2)
    is_inside = ops.compare(share, lowest, direction="GT")
    return ops.select(is_inside, far_below, ops.full_like(share, -math.inf))


def _linear_refined(
    approximate: Tensor,
    x: Tensor,
    threshold: Tensor,
    *lower: Tensor,
    matrix_format: str,
    step: float = 1.0,
) -> Tensor:
    rows = rounded(x, steps(FORMATS[matrix_format], 16))
    added = quantized_product(rows, *lower, matrix_format=matrix_format)
    if approximate.shape != added.shape:
        added = f.narrow(added, 1, 0, approximate.shape[1])
    if step != 1:
        added = added * step
    count, outputs = added.shape
    shape = (count, outputs // ROWS, ROWS)
    largest = ops.reduce_max(ops.reshape(approximate, shape=shape), axes=(2,))
    limit = f.along_axes(threshold, largest, (1,))
    reached = ops.compare(largest, limit, direction="GE")
    chosen = ops.broadcast(reached, shape=shape, axes=(0, 1))
    exact = approximate + added
    return ops.select(ops.reshape(chosen, shape=exact.shape), exact, approximate)


def _limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[1])
    format_of(attrs).require(types[3:])


def _kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    name = f"linear_refined_{format_of(attrs).symbol}"
    product = product_kernel(name, types[1:], result.shape[1], {}, matrix=2)
    # It reads few blocks of the matrix.
    scalars = (attrs.get("step", 1.0),)
    return replace(product, private=(), scalars=scalars, in_place=True)


def _sample(
    rng: np.random.Generator, matrix_format: MatrixFormat, outputs: int, step: float
) -> Sample:
    approximate = normal(rng, 3, outputs)
    # Some blocks of the first row if it has several, none of the second, all of the third.
    threshold = np.array([np.sort(approximate[0])[-3], 100, -100], np.float32)
    arrays = sample_matrix(rng, matrix_format, outputs, 32)
    attrs = {"matrix_format": matrix_format.name, "step": step}
    return Sample((approximate, normal(rng, 3, 32), threshold, *arrays), attrs)


_INT2 = FORMATS["int2-g16-s256"]

linear_refined: Fused = Fused(
    name="linear_refined",
    doc="Adds what is missing to products (M, N) that were computed from the upper bits of a "
    "matrix. If one of a block of sixteen outputs reaches its row's threshold, all sixteen get "
    "`step` times the product of the lower bits, which are a matrix of a `matrix_format`.",
    reference=_linear_refined,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: [
        _sample(rng, formats.INT4, 48, 1.0),
        _sample(rng, _INT2, 16, 1.0),
        _sample(rng, formats.INT4, 16, 1 / 16),
    ],
)
