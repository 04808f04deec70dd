"""Norms: tensors scaled by their own statistics, which are computed in f32 for f16 and bf16."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.products import DECODE_ROWS
from hearthd.models.dsl.functions.shapes import along_axes, along_channels, along_last
from hearthd.models.dsl.functions.statistics import mean, variance
from hearthd.models.dsl.functions.wide import in_f32
from hearthd.models.dsl.iree_faults.forms import wide_rows

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "batch_norm",
    "batch_norm_training",
    "group_norm",
    "grouped_rms_norm",
    "layer_norm",
    "rms_norm",
]


@composite()
@in_f32
def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich, 2019).

    A root and a division round alike on every machine; rsqrt is an estimate where it is fast.
    """
    x = _apart(x)
    mean_square = ops.reduce_sum(x * x, axes=(x.type.rank - 1,)) * (1.0 / x.shape[-1])
    return _apart(x / along_axes(ops.sqrt(mean_square + eps), x, (-1,)) * along_last(weight, x))


@composite()
def grouped_rms_norm(x: Tensor, weight: Tensor, *, groups: int, eps: float) -> Tensor:
    """`rms_norm` of each of `groups` parts of a row of x (N, E), times weight (E,)."""
    if groups == 1:
        return rms_norm(x, weight, eps=eps)
    parts = ops.reshape(x, shape=(x.shape[0], groups, x.shape[1] // groups))
    ones = ops.full(shape=parts.shape[2:], dtype=x.dtype, value=1.0)
    normalized = ops.reshape(rms_norm(parts, ones, eps=eps), shape=x.shape)
    return normalized * along_last(weight, x)


def _apart(x: Tensor) -> Tensor:
    """x, in a decode behind a barrier: a sequence's rows must not depend on the batch size."""
    return ops.barrier(x) if x.shape[0] <= DECODE_ROWS else x


@in_f32
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis (Ba et al., 2016)."""
    y = _standard(x, (-1,), eps)
    y = y if weight is None else y * along_last(weight, y)
    return y if bias is None else y + along_last(bias, y)


@in_f32
def group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, groups: int, eps: float
) -> Tensor:
    """As `layer_norm`, over each group of channels of x (N, C, ...) (Wu and He, 2018).

    weight and bias are (C,).
    """
    ops.require(x.type.rank >= 2, f"x (N, C, ...), got {x.type}", "group_norm")
    ops.require(
        groups >= 1 and x.shape[1] % groups == 0,
        f"groups that divide the {x.shape[1]} channels, got {groups}",
        "group_norm",
    )
    grouped = ops.reshape(x, shape=(x.shape[0], groups, x.type.size // x.shape[0] // groups))
    return _per_channel(ops.reshape(_standard(grouped, (-1,), eps), shape=x.shape), weight, bias)


@in_f32
def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float,
) -> Tensor:
    """x (N, C, ...) by statistics (C,) that are known (Ioffe and Szegedy, 2015)."""
    root = ops.sqrt(running_variance + eps)
    centered = x - along_channels(running_mean, x)
    return _per_channel(centered / along_channels(root, x), weight, bias)


@in_f32
def batch_norm_training(
    x: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float,
    momentum: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """x (N, C, ...) by its own statistics over all axes but C, and the running ones updated.

    They move by `momentum` towards the mean, and to the variance with the correction 1.
    """
    axes = _all_but_channels(x)
    y = _per_channel(_standard(x, axes, eps), weight, bias)
    return (
        y,
        running_mean * (1.0 - momentum) + mean(x, *axes) * momentum,
        running_variance * (1.0 - momentum) + variance(x, *axes, correction=1) * momentum,
    )


def _standard(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """x with mean 0 and variance 1 over some axes."""
    width = math.prod(x.shape[axis] for axis in axes)
    x = wide_rows(x, width)
    centered = x - along_axes(wide_rows(mean(x, *axes), width), x, axes)
    root = ops.sqrt(mean(centered * centered, *axes) + eps)
    return centered / along_axes(root, x, axes)


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * along_channels(weight, x)
    return x if bias is None else x + along_channels(bias, x)


def _all_but_channels(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.type.rank))
