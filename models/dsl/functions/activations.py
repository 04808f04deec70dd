"""Functions of each element, and softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import along_axes, axis_of
from hearthd.models.dsl.functions.wide import in_f32

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "clamp",
    "clamped_swiglu",
    "elu",
    "gated_heads",
    "gelu",
    "gelu_tanh",
    "leaky_relu",
    "limited_swiglu",
    "log2",
    "log10",
    "log_softmax",
    "relu",
    "sigmoid",
    "silu",
    "soft_cap",
    "softmax",
    "softplus",
    "squared_relu",
]


# --- softmax


@in_f32
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """exp(x - max) / sum, over one axis.

    A row that is -inf throughout gives zeros: nothing was there to choose from.
    """
    axes = (axis_of(x, axis),)
    largest = ops.reduce_max(x, axes=axes)
    finite = ops.maximum(largest, ops.full_like(largest, x.dtype.lowest))
    exponentials = ops.exponential(x - along_axes(finite, x, axes))
    total = ops.reduce_sum(exponentials, axes=axes)
    # The largest element alone adds 1: only a row of nothing has less.
    some = ops.maximum(total, ops.full_like(total, 1.0))
    return exponentials / along_axes(some, x, axes)


@in_f32
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """x - max - log(sum(exp(x - max))), over one axis: the logarithm of `softmax`."""
    axes = (axis_of(x, axis),)
    shifted = x - along_axes(ops.reduce_max(x, axes=axes), x, axes)
    total = ops.reduce_sum(ops.exponential(shifted), axes=axes)
    return shifted - along_axes(ops.log(total), x, axes)


# --- of each element


def log2(x: Tensor) -> Tensor:
    """The logarithm of x to the base 2."""
    return ops.log(x) * (1.0 / math.log(2.0))


def log10(x: Tensor) -> Tensor:
    """The logarithm of x to the base 10."""
    return ops.log(x) * (1.0 / math.log(10.0))


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    """x limited to `low` to `high`. The gradient is 0 outside of these limits."""
    return ops.minimum(ops.maximum(x, ops.full_like(x, low)), ops.full_like(x, high))


def relu(x: Tensor) -> Tensor:
    """The larger of x and 0. Its gradient at 0 is 0."""
    return ops.maximum(ops.full_like(x, 0.0), x)


@composite()
def squared_relu(x: Tensor) -> Tensor:
    """relu(x)^2 (So et al., 2021)."""
    positive = relu(x)
    return positive * positive


def leaky_relu(x: Tensor, *, slope: float = 0.01) -> Tensor:
    """x, times `slope` where x is negative (Maas et al., 2013). Its gradient at 0 is the slope."""
    positive = ops.compare(x, ops.full_like(x, 0.0), direction="GT")
    return ops.select(positive, x, x * slope)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x, and alpha (exp(x) - 1) where x is not positive (Clevert et al., 2015)."""
    nothing = ops.full_like(x, 0.0)
    # Of what is not chosen, no infinity: times a gradient of 0 it would be none.
    below = ops.exponential_minus_one(ops.minimum(x, nothing)) * alpha
    return ops.select(ops.compare(x, nothing, direction="GT"), x, below)


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution at x: 0.5 x (1 + erf(x / sqrt(2)))."""
    return x * 0.5 * (ops.erf(x * math.sqrt(0.5)) + 1.0)


@composite()
def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (ops.tanh(inner) + 1.0)


@composite()
@in_f32
def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x)) (Elfwing et al., 2017)."""
    # exp(80) is finite, and at -80 and below the result is as good as zero.
    bounded = ops.maximum(x, ops.full_like(x, -80.0))
    return bounded / (ops.exponential(-bounded) + 1.0)


@composite()
def clamped_swiglu(gate: Tensor, up: Tensor, *, limit: float, slope: float) -> Tensor:
    """(u + 1) g sigmoid(slope * g): g is `gate`, at most `limit`, and u is `up` within +-`limit`.

    The gate of gpt-oss ("gpt-oss-120b & gpt-oss-20b Model Card", 2025).
    """
    bounded = ops.minimum(gate, ops.full_like(gate, limit))
    return (clamp(up, -limit, limit) + 1.0) * (bounded * sigmoid(bounded * slope))


def limited_swiglu(gate: Tensor, up: Tensor, *, limit: float | None) -> Tensor:
    """silu(gate), at most `limit`, times `up` within +-`limit`; None: without a limit.

    The gate of Step 3.5 Flash (2026).
    """
    activated = silu(gate)
    if limit is None:
        return activated * up
    return ops.minimum(activated, ops.full_like(activated, limit)) * clamp(up, -limit, limit)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), as a tanh, which overflows nowhere."""
    return ops.tanh(x * 0.5) * 0.5 + 0.5


@composite()
def gated_heads(gate: Tensor, x: Tensor) -> Tensor:
    """sigmoid(gate) x: gates of heads (N, H, D), and the heads of attention."""
    return sigmoid(gate) * x


@composite()
def soft_cap(x: Tensor, *, cap: float) -> Tensor:
    """cap * tanh(x / cap): x where it is small, and between -cap and cap."""
    return ops.tanh(x * (1.0 / cap)) * cap


@in_f32
def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), without overflow."""
    zero = ops.full_like(x, 0.0)
    return ops.maximum(x, zero) + ops.log_plus_one(ops.exponential(-ops.absolute(x)))
