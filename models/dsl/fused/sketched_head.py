"""The output head of a drafter: a sketch of all rows, then the rows that may be the best.

A draft is the most likely token alone, and a wrong draft costs time but changes no answer. So the
head has a *sketch*: the signs of its rows, with the mean magnitude of each 128 columns. By it, most
blocks of sixteen rows are far below the best one, and are not computed.

Before the signs are taken, the mean row is subtracted: its product is the same for all rows. Then
columns are rotated, as activations are (`f.rotate_heads`): a few columns are much larger than the
others, and would make up most of the mean magnitude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import require_rows, rounded
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.quantized_products import product_kernel, sample_matrix
from hearthd.models.dsl.fused.two_part_head import linear_refined, parts_of
from hearthd.models.dsl.matrix_format import GROUP, INT1, ROWS
from hearthd.models.dsl.matrix_values import quantized_product
from hearthd.models.dsl.ops.record import Sample, require
from hearthd.models.dsl.ops.samples import normal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Attrs, Types
    from hearthd.models.dsl.types import TensorType

__all__ = ["SKETCH", "linear_sketch", "sketch_arrays", "sketched_head"]

SKETCH = INT1
# The most groups of a row: its integers are on the stack of the kernel.
_MAX_GROUPS = 512
# A block is computed if its largest output by the sketch is this many standard deviations above
# the mean of all blocks' largest outputs. That is 7 % of the blocks.
_DEVIATIONS = 1.25
_UNLIKELY = -1e30  # the logit of a token of another block
# Logits this much below the largest, in nats, keep the error of the upper bits. The best one was
# at most 2.6 below (docs/output-head.md).
_NEAR = 3.0


def sketch_arrays(rows: int, columns: int) -> Mapping[str, TensorType]:
    """The types of the arrays of the sketch of a matrix (rows, columns)."""
    return {f"sketch_{name}": type_ for name, type_ in SKETCH.arrays(rows, columns).items()}


def sketched_head(
    x: Tensor,
    arrays: tuple[Tensor, ...],
    sketch: tuple[Tensor, ...],
    matrix_format: MatrixFormat,
) -> Tensor:
    """x W^T for x f32 (1, K) and a matrix W (N, K) in two parts: (1, N), most of it very low."""
    split = matrix_format.split
    assert split is not None, matrix_format.name
    lower, upper = parts_of(arrays, matrix_format)
    rotated = ops.reshape(f.rotate_heads(ops.reshape(x, shape=(1, *x.shape))), shape=x.shape)
    candidates = _likely_blocks(linear_sketch(rotated, *sketch))
    every = ops.full(shape=(1,), dtype=x.dtype, value=_UNLIKELY / 2)
    with_upper = linear_refined(
        candidates, x, every, *upper, replaces=True, matrix_format=split.upper.name
    )
    near = ops.reduce_max(with_upper, axes=(1,)) - _NEAR
    return linear_refined(
        with_upper, x, near, *lower, matrix_format=split.lower.name, step=split.step
    )


def _likely_blocks(coarse: Tensor) -> Tensor:
    """Outputs (1, N), very low in blocks that are unlikely to have the largest one."""
    shape = (1, coarse.shape[1] // ROWS, ROWS)
    blocks = ops.reshape(coarse, shape=shape)
    largest = ops.reduce_max(blocks, axes=(2,))
    spread = ops.sqrt(f.variance(largest, 1, correction=0))
    threshold = f.mean(largest, 1) + spread * _DEVIATIONS
    # A few equal blocks can all be nearer to the mean.
    threshold = ops.minimum(threshold, ops.reduce_max(largest, axes=(1,)))
    is_likely = ops.compare(largest, f.along_axes(threshold, largest, (1,)), direction="GE")
    chosen = ops.broadcast(is_likely, shape=shape, axes=(0, 1))
    candidates = ops.select(chosen, blocks, ops.full_like(blocks, _UNLIKELY))
    return ops.reshape(candidates, shape=coarse.shape)


# --- linear_sketch


def _linear_sketch(x: Tensor, *sketch: Tensor) -> Tensor:
    missing = -x.shape[1] % SKETCH.super_block
    padded = ops.pad(x, padding=((0, 0, 0), (0, missing, 0)), value=0.0) if missing else x
    rows = f.narrow(rounded(padded, 1, group=SKETCH.super_block), 1, 0, x.shape[1])
    return quantized_product(rows, *sketch, matrix_format=SKETCH.name)


def _limits(types: Types, _: Attrs) -> None:
    require_rows(types[0])
    SKETCH.require(types[1:])
    require(types[0].shape[1] <= _MAX_GROUPS * GROUP, f"at most {_MAX_GROUPS * GROUP} columns")


def _sample(rng: np.random.Generator, rows: int, outputs: int, columns: int) -> Sample:
    return Sample((normal(rng, rows, columns), *sample_matrix(rng, SKETCH, outputs, columns)), {})


linear_sketch: Fused = Fused(
    name="linear_sketch",
    doc="Rows (M, K), rounded to 8 bits per group of 128 columns, times a sketch: a matrix (N, K) "
    "of signs, with a scale for 128 columns.",
    reference=_linear_sketch,
    limits=_limits,
    kernel=lambda types, result, _: product_kernel("linear_sketch", types, result.shape[1], {}),
    rows_apart=True,
    samples=lambda rng: [_sample(rng, 1, 32, 160), _sample(rng, 2, 16, 64)],
)
