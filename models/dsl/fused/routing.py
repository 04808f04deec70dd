"""A mixture of experts around its products: the router, and the sum of the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.activations import require_rows
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["expert_factors", "expert_sum", "router_logits", "top_indices"]

_LANES = 16  # as the kernels have them
_MAX_EXTENT, _MAX_CHOSEN = 4096, 64  # as they have room for
_MIN_SHARE = 256  # values of a workgroup
_MAX_WORKGROUPS = 8


def _shares(count: int) -> tuple[int, int]:
    """The rows of a workgroup of all rows, or the outputs of one, and the workgroups."""
    share = -(-count // _MAX_WORKGROUPS)
    return share, -(-count // share)


# --- router_logits


def _logit_limits(types: Types, _: Attrs) -> None:
    x, weight = types
    require_rows(x)
    require(weight == x.with_shape(weight.shape[0], x.shape[1]), "a matrix f32 (X, E)")


def _logit_kernel(types: Types, result: TensorType, _: Attrs) -> Kernel:
    (rows, columns), experts = types[0].shape, result.shape[1]
    share, workgroups = _shares(experts)
    return Kernel(
        function="linear_f32",
        sizes=(share, rows, experts, columns),
        workgroups=workgroups,
        private=(0, share * columns),
    )


router_logits: Fused = Fused(
    name="router_logits",
    doc="`f.router_logits` of rows f32 (N, E) and a matrix f32 (X, E).",
    reference=f.router_logits.op.reference,
    limits=_logit_limits,
    kernel=_logit_kernel,
    samples=lambda rng: [
        Sample((normal(rng, rows, columns), normal(rng, 10, columns)))
        for rows, columns in ((1, 48), (7, 21))
    ],
)


# --- top_indices


def _top_limits(types: Types, _: Attrs) -> None:
    (x,) = types
    require_rows(x)
    require(x.shape[1] <= _MAX_EXTENT, f"at most {_MAX_EXTENT} elements in a row")


def _top_kernel(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    share, workgroups = _shares(types[0].shape[0])
    sizes = (share, *types[0].shape, attrs["count"])
    return Kernel(function="top_indices", sizes=sizes, workgroups=workgroups)


top_indices: Fused = Fused(
    name="top_indices",
    doc="`f.top_indices`: the indices of the largest elements of each row.",
    reference=f.top_indices.op.reference,
    in_numpy=f.top_indices.op.in_numpy,
    limits=_top_limits,
    kernel=_top_kernel,
    samples=lambda rng: [
        Sample((np.rint(4 * normal(rng, 3, 20)),), {"count": 5}),
        Sample((normal(rng, 1, 16),), {"count": 1}),
    ],
)


# --- expert_factors


def _factor_limits(types: Types, _: Attrs) -> None:
    logits, chosen, *scale = types
    require_rows(logits)
    require(
        chosen.rank == 2
        and chosen.dtype is DType.I32
        and scale in ([], [logits.with_shape(logits.shape[1])]),
        "experts i32 (N, C), and a scale f32 (X,) if any",
    )
    require(chosen.shape[1] <= _MAX_CHOSEN, f"at most {_MAX_CHOSEN} experts of a token")


def _factor_kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    (rows, experts), count, scale = types[0].shape, result.shape[1], types[2:]
    share, workgroups = _shares(rows)
    scores = f.SCORES.index(attrs["scores"])
    return Kernel(
        function="expert_factors_scaled" if scale else "expert_factors",
        sizes=(share, rows, experts, count, scores, int(attrs["normalized"])),
        workgroups=workgroups,
        scalars=(attrs["sum_offset"], attrs["min_sum"], attrs["factor"]),
    )


expert_factors: Fused = Fused(
    name="expert_factors",
    doc="`f.expert_factors`: the scores of a token's experts, in some models divided by their sum.",
    reference=f.expert_factors.op.reference,
    limits=_factor_limits,
    kernel=_factor_kernel,
    samples=lambda rng: [
        Sample(
            (normal(rng, 2, 21), np.array([[3, 20], [0, 7]], np.int32), *scale),
            {
                "scores": scores,
                "normalized": scores != f.CHOSEN,
                "sum_offset": 0.1,
                "min_sum": 0.01,
                "factor": 2.5,
            },
        )
        for scores, scale in (
            (f.SOFTMAX, ()),
            (f.SIGMOID, (normal(rng, 21),)),
            (f.CHOSEN, ()),
        )
    ],
)


# --- expert_sum


def _sum_limits(types: Types, _: Attrs) -> None:
    y, factors = types
    require_rows(y)
    require(factors.rank == 2 and factors.dtype is y.dtype, "factors f32 (N, C)")
    require(y.shape[1] % _LANES == 0, f"a multiple of {_LANES} columns")


def _sum_kernel(types: Types, result: TensorType, _: Attrs) -> Kernel:
    each = max(_MIN_SHARE, -(-result.size // _MAX_WORKGROUPS))
    share = -(-each // _LANES) * _LANES
    return Kernel(
        function="expert_sum",
        sizes=(share, result.size, result.shape[1], types[1].shape[1]),
        workgroups=-(-result.size // share),
    )


expert_sum: Fused = Fused(
    name="expert_sum",
    doc="`f.expert_sum`: the sum of the results of a token's experts, each times its factor.",
    reference=f.expert_sum.op.reference,
    limits=_sum_limits,
    kernel=_sum_kernel,
    samples=lambda rng: [
        Sample((normal(rng, rows * count, columns), normal(rng, rows, count)))
        for rows, count, columns in ((1, 3, 32), (3, 2, 16))
    ],
)
