"""Convolutions as PyTorch has them, along one, two or three axes.

`N` is a batch, `C` are channels, `O` output channels, `G` groups. A stride, a padding or a dilation
is one number for all spatial axes, or one for each.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.shapes import along_channels, narrow

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

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

    `padding` zeros are on both sides of x. An output reads every `dilation`-th element of x
    from its first one, and the next output begins `stride` further.
    """
    window = _window("convolution", x, weight, stride, padding, dilation)
    strides, dilations = window.strides, window.dilations
    padded = _padded(x, window.padding)
    for axis in range(x.type.rank - 2):
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
    name = "transposed_convolution"
    window = _window(name, x, weight, stride, padding, dilation)
    behind = _per_axis(name, "output_padding", output_padding, x.type.rank - 2, 0)
    ops.require(
        all(map(operator.lt, behind, map(max, window.strides, window.dilations))),
        f"an output_padding below the stride or the dilation, got {output_padding}",
        name,
    )
    ops.require(
        groups >= 1 and x.shape[1] == weight.shape[0] and x.shape[1] % groups == 0,
        f"x (N, C, ...) and weight (C, O / G, ...) with C a multiple of {groups} groups, "
        f"got {x.type} and {weight.type}",
        name,
    )
    y = ops.spread(x, weight, strides=window.strides, dilation=window.dilations, groups=groups)
    y = ops.pad(y, padding=((0, 0, 0), (0, 0, 0), *((0, more, 0) for more in behind)))
    for axis, crop in enumerate(window.padding, 2):
        ops.require(
            2 * crop < y.shape[axis],
            f"padding that leaves an element of axis {axis}, got {crop} of {y.shape[axis]}",
            name,
        )
        y = narrow(y, axis, crop, y.shape[axis] - crop)
    return _with_bias(y, bias)


@dataclass(frozen=True)
class _Window:
    """How a kernel moves over x, along each spatial axis."""

    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]


def _window(
    name: str, x: Tensor, weight: Tensor, stride: _PerAxis, padding: _PerAxis, dilation: _PerAxis
) -> _Window:
    """The attributes of a convolution, for each spatial axis; raises TypeRuleError."""
    ops.require(
        x.type.rank == weight.type.rank >= 3,
        f"x (N, C, ...) and a weight of its rank, got {x.type} and {weight.type}",
        name,
    )
    spatial = x.type.rank - 2
    return _Window(
        strides=_per_axis(name, "stride", stride, spatial, 1),
        padding=_per_axis(name, "padding", padding, spatial, 0),
        dilations=_per_axis(name, "dilation", dilation, spatial, 1),
    )


def _per_axis(name: str, label: str, value: _PerAxis, axes: int, minimum: int) -> tuple[int, ...]:
    values = (value,) * axes if isinstance(value, int) else value
    ops.require(
        len(values) == axes and min(values) >= minimum,
        f"a {label} of at least {minimum} for each of {axes} axes, got {value}",
        name,
    )
    return values


def _padded(x: Tensor, padding: tuple[int, ...]) -> Tensor:
    return ops.pad(x, padding=((0, 0, 0), (0, 0, 0), *((more, more, 0) for more in padding)))


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + along_channels(bias, y)
