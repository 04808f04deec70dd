"""Layers that recurrences share.

In shape comments `N` is sequences x tokens, `n` the new tokens of a sequence, `C` channels, `H`
heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.kv_cache import Span
    from hearthd.models.dsl.graph import Tensor


class CausalConv(nn.Module):
    """A convolution of each channel over the latest inputs, (C, taps), then SiLU."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False) -> None:
        self.weight = nn.parameter(channels, taps, dtype=DType.F32)
        self.bias = nn.parameter(channels, dtype=DType.F32) if bias else None

    def __call__(self, x: Tensor, states: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Inputs (n, C) -> SiLU of the sums (n, C), and the ring of the latest inputs."""
        before = span.before(states)
        mixed = f.causal_conv(before, x, self.weight, self.bias)
        return mixed, f.latest_inputs(states, span.positions, before, x, every=span.every)


class LowRank(nn.Module):
    """b(activation(a(x))), where a projects to few columns, and only b may have a bias."""

    def __init__(
        self,
        inputs: int,
        rank: int,
        outputs: int,
        activation: Callable[[Tensor], Tensor] | None = None,
        *,
        bias: bool = False,
    ) -> None:
        self.a_proj = nn.Linear(inputs, rank)
        self.b_proj = nn.Linear(rank, outputs, bias=bias)
        self.activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs) -> (N, outputs)."""
        y = self.a_proj(x)
        return self.b_proj(y if self.activation is None else self.activation(y))


class Rates(nn.Module):
    """How fast the memory of each head fades: numbers (H,) below 0."""

    def __init__(self, heads: int) -> None:
        self.weight = nn.parameter(heads, dtype=DType.F32)


class Bias(nn.Module):
    """Numbers (H,), one added to each head's."""

    def __init__(self, heads: int) -> None:
        self.bias = nn.parameter(heads, dtype=DType.F32)


class GroupedNorm(nn.Module):
    """RMSNorm of each of G groups of columns, times a factor for each column."""

    def __init__(self, width: int, groups: int, eps: float) -> None:
        self.weight = nn.parameter(width, dtype=DType.F32)
        self.groups, self.eps = groups, eps

    def __call__(self, x: Tensor) -> Tensor:
        """(N, width) -> (N, width)."""
        return f.grouped_rms_norm(x, self.weight, groups=self.groups, eps=self.eps)


class Skip(nn.Module):
    """The factor of each head's input that is added to its output, D in the paper: (H,)."""

    def __init__(self, heads: int) -> None:
        self.weight = nn.parameter(heads, dtype=DType.F32)
