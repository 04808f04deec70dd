"""The router of a mixture of experts (Shazeer et al., 2017).

In shape comments `N` is tokens, `X` experts, and `C` the experts of each token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import sigmoid, softmax
from hearthd.models.dsl.functions.products import matmul_transposed
from hearthd.models.dsl.functions.selection import gather, top_indices
from hearthd.models.dsl.functions.shapes import along_axes

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "CHOSEN",
    "SCORES",
    "SIGMOID",
    "SOFTMAX",
    "expert_factors",
    "expert_sum",
    "in_best_groups",
    "router_logits",
]

# How the logits of a token's experts become scores: the softmax or the sigmoid of all of them, or
# the softmax of the chosen ones.
SCORES = SOFTMAX, SIGMOID, CHOSEN = "softmax", "sigmoid", "softmax of the chosen"


@composite()
def router_logits(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x (N, E) and W (X, E): the logits of experts (N, X).

    The matrix is small and stays f32: a rounding would send tokens to other experts. A token's
    logits must not depend on how many others are read with it, so one kernel computes all of them.
    """
    return matmul_transposed(x, weight, dtype=x.dtype)


def in_best_groups(scores: Tensor, *, groups: int, count: int) -> Tensor:
    """Scores (N, X), and -infinity for all experts outside the best groups of a row.

    The experts form equal groups, of at least two. The `count` groups with the largest sums of two
    scores are the best ones.
    """
    rows, experts = scores.shape
    ops.require(experts % groups == 0, f"{experts} experts do not form {groups} equal groups")
    by_group = ops.reshape(scores, shape=(rows * groups, experts // groups))
    sums = ops.reduce_sum(_largest(by_group, 2, by_group), axes=(1,))
    sums = ops.reshape(sums, shape=(rows, groups))
    is_best = _largest(sums, count, ops.full_like(sums, 1.0))
    is_best = ops.broadcast(is_best, shape=(rows, groups, experts // groups), axes=(0, 1))
    is_best = ops.reshape(is_best, shape=scores.shape) > 0
    return ops.select(is_best, scores, ops.full_like(scores, -math.inf))


def _largest(x: Tensor, count: int, values: Tensor) -> Tensor:
    """`values` (N, M) at the `count` largest elements of each row of x (N, M), and 0 elsewhere."""
    indices = top_indices(x, count=count)
    shape = (*indices.shape, x.shape[1])
    index = ops.iota(shape=shape, axis=2, dtype=indices.dtype)
    is_there = ops.compare(ops.broadcast(indices, shape=shape, axes=(0, 1)), index, direction="EQ")
    values = ops.broadcast(values, shape=shape, axes=(0, 2))
    return ops.reduce_sum(ops.select(is_there, values, ops.full_like(values, 0.0)), axes=(1,))


@composite()
def expert_factors(
    logits: Tensor,
    chosen: Tensor,
    scale: Tensor | None = None,
    *,
    scores: str,
    normalized: bool,
    sum_offset: float,
    min_sum: float,
    factor: float,
) -> Tensor:
    """What multiplies the results of a token's experts: f32 (N, C).

    logits      of all experts (N, X)
    chosen      the token's experts, i32 (N, C), each of them once
    scale       (X,): multiplies the scores of each expert last
    scores      one of SCORES
    normalized  whether the scores are divided by their sum
    sum_offset  is added to that sum
    min_sum     the smallest sum that divides
    factor      multiplies the scores
    """
    ops.require(scores in SCORES, f"scores: one of {', '.join(SCORES)}, got {scores!r:.80}")
    ops.require(
        logits.type.rank == chosen.type.rank == 2 and logits.shape[0] == chosen.shape[0],
        f"logits (N, X) and experts i32 (N, C), got {logits.type} and {chosen.type}",
    )
    every = logits
    if scores != CHOSEN:
        every = softmax(logits) if scores == SOFTMAX else sigmoid(logits)
    shape = (*chosen.shape, logits.shape[1])
    expert = ops.iota(shape=shape, axis=2, dtype=chosen.dtype)
    is_chosen = ops.compare(ops.broadcast(chosen, shape=shape, axes=(0, 1)), expert, direction="EQ")
    values = ops.broadcast(every, shape=shape, axes=(0, 2))
    factors = ops.reduce_sum(ops.select(is_chosen, values, ops.full_like(values, 0.0)), axes=(2,))
    if scores == CHOSEN:
        factors = softmax(factors)
    if normalized:
        total = ops.reduce_sum(factors, axes=(1,)) + sum_offset
        total = ops.maximum(total, ops.full_like(total, min_sum))
        factors = factors / along_axes(total, factors, (1,))
    factors = factors * factor
    return factors if scale is None else factors * gather(scale, chosen, axis=0)


@composite()
def expert_sum(y: Tensor, factors: Tensor) -> Tensor:
    """The sum of the results of a token's experts, each times its factor: (N, E).

    y        (N * C, E): the results of the experts of the first token, of the next one, and so on
    factors  (N, C)
    """
    ops.require(
        y.type.rank == factors.type.rank == 2 and y.shape[0] == factors.type.size,
        f"results (N * C, E) and factors (N, C), got {y.type} and {factors.type}",
    )
    results = ops.reshape(y, shape=(*factors.shape, y.shape[1]))
    return ops.reduce_sum(results * along_axes(factors, results, (2,)), axes=(1,))
