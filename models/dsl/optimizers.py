"""Optimizers: from weights, gradients and a state to the next weights and state, in ops.

They know names and types, and no model. All that an optimizer remembers from one step to the next
is its state, which starts as zeros.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hearthd.models.dsl import ops
from hearthd.models.dsl.types import NARROW, DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.dsl.graph import Tensor


class Optimizer(Protocol):
    """The interface of an optimizer in a training step."""

    def state(self, weights: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """The types of the state, by name, for weights of these types."""

    def update(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The next weights and the next state. Gradients have the weights' names and types."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """w' = w - rate * v' with v' = momentum * v + gradient (Polyak, 1964)."""

    rate: float
    momentum: float = 0.0

    def state(self, weights: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """v of every weight."""
        return {f"{name}.velocity": tensor_type for name, tensor_type in weights.items()}

    def update(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The next weights and velocities."""
        new: dict[str, Tensor] = {}
        velocities: dict[str, Tensor] = {}
        for name, weight in weights.items():
            key = f"{name}.velocity"
            velocities[key] = state[key] * self.momentum + gradients[name]
            new[name] = weight - velocities[key] * self.rate
        return new, velocities


class Schedule(Protocol):
    """A learning rate that depends on the step."""

    def rate(self, steps: Tensor, dtype: DType) -> Tensor:
        """The rate () of the next step, after `steps`, i32 (), steps; computed in a dtype."""


@dataclass(frozen=True, kw_only=True)
class WarmupCosine:
    """A linear rise over `warmup` steps, then half a cosine down to 0 after `total` steps.

    Step t, counted from 0, has the rate peak * (t + 1) / warmup at first, and then
    peak * (1 + cos(pi * (t - warmup) / (total - warmup))) / 2. Raises DslError unless
    0 <= warmup < total.
    """

    peak: float
    warmup: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < self.total:
            raise DslError(f"warmup: expected 0 to {self.total - 1}, got {self.warmup}")

    def rate(self, steps: Tensor, dtype: DType) -> Tensor:
        """The rate () of the next step, after `steps`, i32 (), steps; computed in a dtype."""
        step = ops.convert(steps, dtype=dtype)
        rising = (step + 1.0) * (1.0 / max(self.warmup, 1))
        progress = (step - float(self.warmup)) * (1.0 / (self.total - self.warmup))
        angle = ops.minimum(progress, ops.full_like(progress, 1.0)) * math.pi
        falling = (ops.cosine(angle) + 1.0) * 0.5
        is_rising = ops.compare(steps, ops.full_like(steps, self.warmup), direction="LT")
        return ops.select(is_rising, rising, falling) * self.peak


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Moments of the gradient, their bias taken off (Kingma and Ba, 2015, algorithm 1).

    m' = beta1 m + (1 - beta1) g and v' = beta2 v + (1 - beta2) g^2, and after t steps
    w' = w - rate * ((m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps) + decay * w).

    decay     the decoupled decay of AdamW (Loshchilov and Hutter, 2019)
    max_norm  gradients of a larger norm, over all weights, are scaled down to it
    """

    rate: float | Schedule
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    max_norm: float = math.inf

    def state(self, weights: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """The number of steps, and m and v of every weight."""
        moments = {
            f"{name}.{moment}": tensor_type
            for name, tensor_type in weights.items()
            for moment in ("m", "v")
        }
        return {"steps": TensorType((), DType.I32), **moments}

    def update(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The next weights; the count and moments after this step."""
        if math.isfinite(self.max_norm):
            gradients = clipped(gradients, self.max_norm)
        new: dict[str, Tensor] = {}
        after: dict[str, Tensor] = {"steps": state["steps"] + 1}
        for name, weight in weights.items():
            g = gradients[name]
            m = state[f"{name}.m"] * self.beta1 + g * (1.0 - self.beta1)
            v = state[f"{name}.v"] * self.beta2 + g * g * (1.0 - self.beta2)
            mean = m / _share(self.beta1, after["steps"], m)
            deviation = ops.sqrt(v / _share(self.beta2, after["steps"], v))
            change = mean / (deviation + self.eps)
            if self.decay:
                change = change + weight * self.decay
            new[name] = weight - self._times_rate(change, state["steps"])
            after |= {f"{name}.m": m, f"{name}.v": v}
        return new, after

    def _times_rate(self, change: Tensor, steps: Tensor) -> Tensor:
        if isinstance(self.rate, int | float):
            return change * self.rate
        rate = self.rate.rate(steps, _wide(change.dtype))
        return change * _filled(rate, change)


def clipped(gradients: Mapping[str, Tensor], max_norm: float) -> dict[str, Tensor]:
    """Gradients scaled by the same factor, so that their norm over all is at most `max_norm`.

    They all are f64, or none is.
    """
    wide = [ops.convert(g, dtype=_wide(g.dtype)) for g in gradients.values()]
    squares = (ops.reduce_sum(g * g, axes=tuple(range(g.type.rank))) for g in wide)
    norm = ops.sqrt(functools.reduce(ops.add, squares))
    factor = ops.minimum(max_norm / (norm + 1e-6), ops.full_like(norm, 1.0))
    return {name: g * _filled(factor, g) for name, g in gradients.items()}


def _wide(dtype: DType) -> DType:
    return DType.F32 if dtype in NARROW else dtype


def _share(beta: float, steps: Tensor, like: Tensor) -> Tensor:
    """1 - beta^steps in another tensor's type: the total weight of the data in a running mean."""
    # expm1, since beta^steps is near 1 at first.
    exponent = ops.convert(steps, dtype=like.dtype) * math.log(beta)
    return _filled(-ops.exponential_minus_one(exponent), like)


def _filled(scalar: Tensor, like: Tensor) -> Tensor:
    """A tensor of another one's type, filled with a scalar ()."""
    return ops.broadcast(ops.convert(scalar, dtype=like.dtype), shape=like.shape, axes=())
