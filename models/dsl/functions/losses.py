"""Loss functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.shapes import along_axes
from hearthd.models.dsl.functions.wide import in_f32
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["cross_entropy", "cross_entropy_per_row", "mean_squared_error"]


@in_f32
def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of `cross_entropy_per_row` over the rows: float (N, V) and i32 (N,) -> ()."""
    losses = cross_entropy_per_row(logits, targets)
    return ops.reduce_sum(losses, axes=(0,)) * (1.0 / logits.shape[0])


@in_f32
def cross_entropy_per_row(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] of each row: float (N, V) and i32 (N,) -> (N,).

    The targets must be in range. Logits of any size are fine: the largest is taken off first.
    """
    # A barrier, since the gradient's kernel would else keep whole rows on the stack of its thread.
    shifted = ops.barrier(logits - along_axes(ops.reduce_max(logits, axes=(1,)), logits, (1,)))
    total = ops.log(ops.reduce_sum(ops.exponential(shifted), axes=(1,)))
    ids = ops.iota(shape=logits.shape, axis=1, dtype=DType.I32)
    chosen = ops.compare(ids, along_axes(targets, ids, (1,)), direction="EQ")
    # Not a gather: the gradient of one is a scatter, which is slow.
    of_target = ops.reduce_sum(ops.select(chosen, shifted, ops.full_like(shifted, 0.0)), axes=(1,))
    return total - of_target


@in_f32
def mean_squared_error(x: Tensor, target: Tensor) -> Tensor:
    """(x - target)^2, the mean over all elements of two tensors of one type: ()."""
    difference = x - target
    squares = ops.reduce_sum(difference * difference, axes=tuple(range(x.type.rank)))
    return squares * (1.0 / x.type.size)
