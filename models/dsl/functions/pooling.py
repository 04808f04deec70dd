"""Images made smaller and larger: x is (..., H, W).

Both axes are done one after the other, which takes 2 n steps for a window of n x n and not n^2.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.shapes import every, flatten, narrow, pad2d, stack
from hearthd.models.dsl.functions.wide import in_f32

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor

__all__ = ["avg_pool2d", "max_pool2d", "upsample2d_bilinear", "upsample2d_nearest"]


def max_pool2d(
    x: Tensor, size: int, *, stride: int | None = None, padding: int = 0, dilation: int = 1
) -> Tensor:
    """The largest element of each window, `stride` (or `size`) apart; the padding is -inf.

    Of equal elements the first, row by row, takes the gradient.
    """
    stride = size if stride is None else stride
    _check_windows("max_pool2d", x, size, stride, padding, dilation)
    if padding:
        x = pad2d(x, (padding,) * 4, value=-math.inf)
    for axis in (-1, -2):
        x = _windows(x, axis, size, stride, dilation, ops.maximum)
    return x


@in_f32
def avg_pool2d(x: Tensor, size: int, *, stride: int | None = None, padding: int = 0) -> Tensor:
    """The mean of each window, `stride` (or `size`) apart; zeros of the padding count."""
    stride = size if stride is None else stride
    _check_windows("avg_pool2d", x, size, stride, padding)
    x = pad2d(x, (padding,) * 4)
    for axis in (-1, -2):
        x = _windows(x, axis, size, stride, 1, ops.add)
    return x * (1.0 / size**2)


def _check_windows(
    name: str, x: Tensor, size: int, stride: int, padding: int, dilation: int = 1
) -> None:
    ops.require(x.type.rank >= 2, f"an image (..., H, W), got {x.type}", name)
    ops.require(
        min(size, stride, dilation) >= 1,
        f"size, stride and dilation of at least 1, got {size}, {stride} and {dilation}",
        name,
    )
    ops.require(
        0 <= padding <= size // 2,
        f"padding of 0 to half the window's size {size}, got {padding}",
        name,
    )
    reach = (size - 1) * dilation + 1
    ops.require(
        min(x.shape[-2:]) + 2 * padding >= reach,
        f"an image of at least {reach} x {reach}, got {x.type} and padding {padding}",
        name,
    )


def _windows(
    x: Tensor, axis: int, size: int, stride: int, dilation: int, combine: Callable[..., Tensor]
) -> Tensor:
    """The elements of each window along one axis, made one by `combine`."""
    reach = (size - 1) * dilation
    last = (x.shape[axis] - 1 - reach) // stride * stride
    parts = (every(x, axis, i * dilation, i * dilation + last + 1, stride) for i in range(size))
    return functools.reduce(combine, parts)


def upsample2d_nearest(x: Tensor, scale: int) -> Tensor:
    """Each element `scale` times along both axes."""
    ops.require(scale >= 1, f"a scale of at least 1, got {scale}", "upsample2d_nearest")
    for axis in (-2, -1):
        x = _interleaved([x] * scale, axis)
    return x


def upsample2d_bilinear(x: Tensor, scale: int) -> Tensor:
    """`scale` times as many elements along both axes, interpolated linearly.

    An element is the value at the middle of its pixel (PyTorch's align_corners=False). Outside of
    the first and the last middle, the border's value holds.
    """
    ops.require(scale >= 1, f"a scale of at least 1, got {scale}", "upsample2d_bilinear")
    for axis in (-2, -1):
        extent = x.shape[axis]
        first, final = narrow(x, axis, 0, 1), narrow(x, axis, extent - 1, extent)
        around = ops.concatenate(first, x, final, axis=x.type.rank + axis)
        before, behind = narrow(around, axis, 0, extent), narrow(around, axis, 2, extent + 2)
        phases = []
        for phase in range(scale):
            away = (phase + 0.5) / scale - 0.5  # from the middle, in pixels
            neighbor = before if away < 0 else behind
            phases.append(x * (1.0 - abs(away)) + neighbor * abs(away))
        x = _interleaved(phases, axis)
    return x


def _interleaved(parts: list[Tensor], axis: int) -> Tensor:
    """The first elements of all parts along one axis, then the second ones, and so on."""
    new_axis = parts[0].type.rank + axis
    return flatten(stack(parts, axis=new_axis + 1), first=new_axis, last=new_axis + 1)
