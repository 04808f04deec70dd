"""Functions of each element, and softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.functions.shapes import along_rows

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["gelu_tanh", "sigmoid", "silu", "softmax"]


def softmax(x: Tensor) -> Tensor:
    """exp(x - max) / sum, over the last axis.

    A row that is -inf throughout gives zeros: nothing was there to choose from.
    """
    last = (x.type.rank - 1,)
    largest = ops.reduce_max(x, axes=last)
    finite = ops.maximum(largest, ops.full_like(largest, x.dtype.lowest))
    exponentials = ops.exponential(x - along_rows(finite, x))
    total = ops.reduce_sum(exponentials, axes=last)
    some = ops.maximum(total, ops.full_like(total, x.dtype.tiny))
    return exponentials / along_rows(some, x)


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (ops.tanh(inner) + 1.0)


def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x)) (Elfwing et al., 2017)."""
    # exp(80) is finite, and below -80 the result is as good as zero.
    bounded = ops.maximum(x, ops.full_like(x, -80.0))
    return x / (ops.exponential(ops.negate(bounded)) + 1.0)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), as a tanh, which overflows nowhere."""
    return ops.tanh(x * 0.5) * 0.5 + 0.5
