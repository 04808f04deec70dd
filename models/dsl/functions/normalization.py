"""Tensors scaled by their own statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.functions.layers import DECODE_ROWS
from models.dsl.functions.shapes import along_last, along_rows

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["rms_norm"]


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich, 2019).

    A root and a division round alike on every machine; rsqrt is an estimate where it is fast.
    """
    x = _apart(x)
    mean_square = ops.reduce_sum(x * x, axes=(x.type.rank - 1,)) * (1.0 / x.shape[-1])
    return _apart(x / along_rows(ops.sqrt(mean_square + eps), x) * along_last(weight, x))


def _apart(x: Tensor) -> Tensor:
    """x, in a decode behind a barrier: a sequence's rows must not depend on the batch size."""
    return ops.barrier(x) if x.shape[0] <= DECODE_ROWS else x
