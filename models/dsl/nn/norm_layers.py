"""Norm layers. Their weights have the dtype of their input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn.module import Module, parameter
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


class RMSNorm(Module):
    """Root-mean-square normalization of the last axis, times a learned factor."""

    def __init__(self, width: int, eps: float, *, dtype: DType = DType.F32) -> None:
        self.weight = parameter(width, dtype=dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return f.rms_norm(x, self.weight, eps=self.eps)


class LayerNorm(Module):
    """Mean 0 and variance 1 along the last axis, times a learned factor and plus a bias."""

    def __init__(
        self, width: int, eps: float, *, bias: bool = True, dtype: DType = DType.F32
    ) -> None:
        self.weight = parameter(width, dtype=dtype)
        self.bias = parameter(width, dtype=dtype) if bias else None
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return f.layer_norm(x, self.weight, self.bias, eps=self.eps)


class GroupNorm(Module):
    """Mean 0 and variance 1 in each group of channels."""

    def __init__(self, groups: int, channels: int, eps: float, *, dtype: DType) -> None:
        self.weight = parameter(channels, dtype=dtype)
        self.bias = parameter(channels, dtype=dtype)
        self.groups = groups
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """(N, channels, ...) -> (N, channels, ...)."""
        return f.group_norm(x, self.weight, self.bias, groups=self.groups, eps=self.eps)


class BatchNorm(Module):
    """Normalize each channel by the batch's mean and variance, after training by running ones."""

    def __init__(self, channels: int, eps: float, *, dtype: DType) -> None:
        self.weight = parameter(channels, dtype=dtype)
        self.bias = parameter(channels, dtype=dtype)
        self.running_mean = parameter(channels, dtype=dtype)
        self.running_var = parameter(channels, dtype=dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """(N, channels, ...) -> (N, channels, ...), by the running statistics."""
        running = (self.running_mean, self.running_var)
        return f.batch_norm(x, *running, self.weight, self.bias, eps=self.eps)

    def train(self, x: Tensor, *, momentum: float) -> tuple[Tensor, Tensor, Tensor]:
        """By the statistics of the batch; and the next running_mean and running_var."""
        running = (self.running_mean, self.running_var)
        return f.batch_norm_training(
            x, *running, self.weight, self.bias, eps=self.eps, momentum=momentum
        )
