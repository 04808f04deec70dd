"""Convolutions as PyTorch has them, along one, two or three axes.

`N` is a batch, `C` are channels, `O` those of the result, `G` groups. What is given for the axes
behind them is one number for all or one for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from models.dsl import ops
from models.dsl.functions.shapes import along_channels, narrow

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["convolution", "transposed_convolution"]

_PerAxis: TypeAlias = int | tuple[int, ...]


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: _PerAxis = 1,
    padding: _PerAxis = 0,
    dilation: _PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """x (N, C, ...), weight (O, C / G, ...), bias (O,) -> (N, O, ...).

    `padding` zeros are on both sides of x. An output reads elements of x that are `dilation`
    apart, and the next one begins `stride` further.
    """
    spatial = x.type.rank - 2
    strides, dilations = _per_axis(stride, spatial), _per_axis(dilation, spatial)
    ops.require(min((1, *strides, *dilations)) >= 1, "positive strides and dilations")
    padded = _padded(x, _per_axis(padding, spatial))
    for axis in range(spatial):
        reach = (weight.shape[2 + axis] - 1) * dilations[axis] + 1
        unread = max(0, padded.shape[2 + axis] - reach) % strides[axis]
        padded = narrow(padded, 2 + axis, 0, padded.shape[2 + axis] - unread)
    y = ops.convolution(padded, weight, strides=strides, dilation=dilations, groups=groups)
    return _with_bias(y, bias)


def transposed_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: _PerAxis = 1,
    padding: _PerAxis = 0,
    dilation: _PerAxis = 1,
    groups: int = 1,
    output_padding: _PerAxis = 0,
) -> Tensor:
    """The gradient of a convolution by its input, as a layer: (N, C, ...) -> (N, O, ...).

    weight (C, O / G, ...), bias (O,). `padding` elements are taken off both sides, after
    `output_padding` zeros have been put behind the end.
    """
    spatial = x.type.rank - 2
    y = ops.spread(
        x,
        weight,
        strides=_per_axis(stride, spatial),
        dilation=_per_axis(dilation, spatial),
        groups=groups,
    )
    behind = ((0, more, 0) for more in _per_axis(output_padding, spatial))
    y = ops.pad(y, padding=((0, 0, 0), (0, 0, 0), *behind))
    for axis, crop in enumerate(_per_axis(padding, spatial), 2):
        y = narrow(y, axis, crop, y.shape[axis] - crop)
    return _with_bias(y, bias)


def _per_axis(value: _PerAxis, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else value


def _padded(x: Tensor, padding: tuple[int, ...]) -> Tensor:
    return ops.pad(x, padding=((0, 0, 0), (0, 0, 0), *((more, more, 0) for more in padding)))


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + along_channels(bias, y)
