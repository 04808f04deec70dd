"""Optimisers: from weights, gradients and a state to the next weights and state, in ops.

They know names and types, and no model. All that an optimiser remembers from one step to the next
is its state, which starts as zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from models.dsl import ops
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from models.dsl.graph import Tensor


class Optimizer(Protocol):
    """What an optimiser is to a training step."""

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


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Moments of the gradient, their bias taken off (Kingma and Ba, 2015, algorithm 1).

    m' = beta1 m + (1 - beta1) g and v' = beta2 v + (1 - beta2) g^2, and after t steps
    w' = w - rate * (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps).
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

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
        new: dict[str, Tensor] = {}
        after: dict[str, Tensor] = {"steps": state["steps"] + 1}
        for name, weight in weights.items():
            g = gradients[name]
            m = state[f"{name}.m"] * self.beta1 + g * (1.0 - self.beta1)
            v = state[f"{name}.v"] * self.beta2 + g * g * (1.0 - self.beta2)
            mean = m / _share(self.beta1, after["steps"], m)
            deviation = ops.sqrt(v / _share(self.beta2, after["steps"], v))
            new[name] = weight - mean / (deviation + self.eps) * self.rate
            after |= {f"{name}.m": m, f"{name}.v": v}
        return new, after


def _share(beta: float, steps: Tensor, like: Tensor) -> Tensor:
    """1 - beta^steps, of another tensor's type: what a mean that began at zero has of its data."""
    # expm1, since beta^steps is near 1 at first.
    exponent = ops.convert(steps, dtype=like.dtype) * math.log(beta)
    share = -ops.exponential_minus_one(exponent)
    return ops.broadcast(share, shape=like.shape, axes=())
