"""A short convolution of each channel over the latest inputs, which a ring keeps.

`T` are tokens, `C` channels, `W` taps: inputs that are summed, the token's own included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import silu
from hearthd.models.dsl.functions.shapes import along_axes, along_last, flatten, narrow, trailing
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["causal_conv", "latest_inputs"]


@composite()
def causal_conv(before: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """SiLU of the sums (T, C) of the latest inputs of each channel times its taps, and a bias (C,).

    before (1, (W - 1) * C): the inputs before the first token, the oldest first; x (T, C); weight
    (C, W): the tap of the newest input last.
    """
    tokens, earlier = x.shape[0], weight.shape[1] - 1
    inputs = _inputs(before, x)
    total = x * _tap(weight, earlier, x)
    for tap in range(earlier):
        total = total + narrow(inputs, 0, tap, tap + tokens) * _tap(weight, tap, x)
    return silu(total if bias is None else total + along_last(bias, total))


@composite()
def latest_inputs(
    states: Tensor, positions: Tensor, before: Tensor, x: Tensor, *, every: bool
) -> Tensor:
    """A ring (R, (W - 1) * C) with the latest inputs after new tokens, the oldest first.

    Those after position p are row p mod R. positions i32 (2,): of the first token, and of the last
    one that counts. before and x as in `causal_conv`. The row is written after each token if
    `every`, else after the last one that counts.
    """
    tokens, channels = x.shape
    first, last = narrow(positions, 0, 0, 1), narrow(positions, 0, 1, 2)
    kept = ops.iota(shape=(tokens,), axis=0, dtype=DType.I32) if every else last - first
    inputs = _inputs(before, x)
    steps = range(1, states.shape[1] // channels + 1)
    latest = [ops.gather(inputs, kept + step, axis=0) for step in steps]
    places = trailing(first, kept.shape) + kept
    places = ops.remainder(places, ops.full_like(places, states.shape[0]))
    return ops.scatter(states, places, ops.concatenate(*latest, axis=1), combine="replace")


def _inputs(before: Tensor, x: Tensor) -> Tensor:
    """All inputs that are read, row by row: (W - 1 + T, C)."""
    earlier = ops.reshape(before, shape=(before.shape[1] // x.shape[1], x.shape[1]))
    return ops.concatenate(earlier, x, axis=0)


def _tap(weight: Tensor, index: int, x: Tensor) -> Tensor:
    return along_axes(flatten(narrow(weight, 1, index, index + 1)), x, (0,))
