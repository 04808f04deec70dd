"""Convolution with strides, kernel dilation and groups.

Other ops do the rest: padding and input dilation are `pad`, and a transposed convolution is the
gradient of this one. The kernel reads every element: the compiler is wrong where it does not.

Layouts are PyTorch's: `N` is a batch, `C` input channels, `O` output channels, `G` groups; one or
more spatial axes follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    Op,
    Reads,
    Sample,
    Types,
    integers,
    operands,
    require,
)
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.ops.shape import pad, reshape, reverse, transpose
from hearthd.models.dsl.types import NARROW

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import TensorType

__all__ = ["convolution", "spread"]

# The first axes: batch and channels.
_LEADING = 2


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, weight = operands(types, 2)
    strides, dilation, groups = attrs["strides"], attrs["dilation"], attrs["groups"]
    require(x.dtype.is_float and x.dtype is weight.dtype, "two inputs of one float dtype")
    require(
        x.rank == weight.rank > _LEADING and len(strides) == len(dilation) == x.rank - _LEADING,
        "x (N, C, ...) and a weight of its rank, a stride and a dilation for each further axis",
    )
    require(min(groups, *strides, *dilation) >= 1, "positive strides, dilation and groups")
    require(
        x.shape[1] == groups * weight.shape[1] and weight.shape[0] % groups == 0,
        f"{groups} times the weight's channels in x, and outputs that divide by {groups}",
    )
    reach = _reach(weight.shape[_LEADING:], dilation)
    spatial = tuple(zip(x.shape[_LEADING:], reach, strides, strict=True))
    require(
        all(extent >= size and (extent - size) % stride == 0 for extent, size, stride in spatial),
        f"extents of {reach} plus a multiple of the strides: every element is read",
    )
    out = ((extent - size) // stride + 1 for extent, size, stride in spatial)
    return x.with_shape(x.shape[0], weight.shape[0], *out)


def _reach(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """How many elements a kernel spans along each spatial axis."""
    return tuple((size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True))


def _evaluate(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    """A matrix product of the windows (N, G, out..., C/G * kernel...) with each group's weight."""
    x, weight = arrays
    groups, kernel = attrs["groups"], weight.shape[_LEADING:]
    spatial = len(kernel)
    axes = tuple(range(_LEADING, _LEADING + spatial))
    reach = _reach(kernel, attrs["dilation"])
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    every = tuple(slice(None, None, step) for step in (1, 1, *attrs["strides"], *attrs["dilation"]))
    windows = windows[every]
    batch, out = x.shape[0], windows.shape[_LEADING : _LEADING + spatial]
    windows = windows.reshape(batch, groups, -1, *out, *kernel)
    behind = 3 + spatial
    order = (0, 1, *range(3, behind), 2, *range(behind, behind + spatial))
    wide = np.result_type(x.dtype, np.float32)  # narrow floats are summed in f32
    rows = windows.transpose(order).reshape(batch, groups, int(np.prod(out)), -1).astype(wide)
    columns = weight.reshape(groups, weight.shape[0] // groups, -1).astype(wide)
    product = np.swapaxes(rows @ np.swapaxes(columns, 1, 2), 2, 3)
    return np.asarray(product.reshape(batch, weight.shape[0], *out)).astype(x.dtype)


def _lower(types: Types, _: TensorType, attrs: Attrs) -> Lowering:
    axes = ", ".join(map(str, range(types[0].rank - _LEADING)))
    return Lowering(
        "stablehlo.convolution",
        "dimension_numbers = "
        f"#stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>, "
        f"window_strides = {integers(attrs['strides'])}, "
        f"rhs_dilation = {integers(attrs['dilation'])}, "
        f"feature_group_count = {attrs['groups']} : i64, batch_group_count = 1 : i64",
        in_f32=types[0].dtype in NARROW,
    )


def spread(
    y: Tensor,
    weight: Tensor,
    *,
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """The transpose of a convolution: each element of y (N, C, ...) adds the kernel to the result.

    weight (C, C'/G, ...) is the weight of the convolution from the result (N, C', ...) to y. The
    result is y, with zeros between its elements (`strides`), convolved with the reversed kernel.
    """
    leading, kernel = weight.shape[:_LEADING], weight.shape[_LEADING:]
    around = [
        (span - 1, span - 1, stride - 1)
        for span, stride in zip(_reach(kernel, dilation), strides, strict=True)
    ]
    spread = pad(y, padding=((0, 0, 0), (0, 0, 0), *around))
    spatial = tuple(range(3, 3 + len(kernel)))
    grouped = reshape(weight, shape=(groups, leading[0] // groups, leading[1], *kernel))
    swapped = reshape(
        transpose(grouped, order=(0, 2, 1, *spatial)),
        shape=(groups * leading[1], leading[0] // groups, *kernel),
    )
    return convolution(
        spread,
        reverse(swapped, axes=tuple(range(_LEADING, weight.type.rank))),
        strides=(1,) * len(kernel),
        dilation=dilation,
        groups=groups,
    )


def _vjp(
    upstream: Tensor, inputs: tuple[Tensor, ...], _: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    """x's gradient is `spread`. The weight's gradient is a convolution of x with the upstream
    gradient, both with batch and channels swapped; its dilation is the stride."""
    x, weight = inputs
    strides, dilation, groups = attrs["strides"], attrs["dilation"], attrs["groups"]
    by_channel = convolution(
        _swapped(x, groups, outermost=False),
        _swapped(upstream, groups, outermost=True),
        strides=dilation,
        dilation=strides,
        groups=groups,
    )
    order = (1, 0, *range(_LEADING, x.type.rank))
    return spread(upstream, weight, **attrs), transpose(by_channel, order=order)


def _swapped(x: Tensor, groups: int, *, outermost: bool) -> Tensor:
    """(N, G C, ...) -> (C, G N, ...), or (G C, N, ...) with the groups outermost."""
    batch, channels, *spatial = x.shape
    channels_per_group = channels // groups
    split = reshape(x, shape=(batch, groups, channels_per_group, *spatial))
    rest = tuple(range(3, 3 + len(spatial)))
    if outermost:
        moved = transpose(split, order=(1, 2, 0, *rest))
        return reshape(moved, shape=(channels, batch, *spatial))
    moved = transpose(split, order=(2, 1, 0, *rest))
    return reshape(moved, shape=(channels_per_group, groups * batch, *spatial))


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (normal(rng, 2, 3, 8), normal(rng, 4, 3, 2)),
            {"strides": (2,), "dilation": (3,), "groups": 1},
        ),
        # The last row and column of x are not read.
        Sample(
            (normal(rng, 2, 4, 5, 7), normal(rng, 6, 2, 2, 3)),
            {"strides": (3, 2), "dilation": (1, 1), "groups": 2},
        ),
    ]


convolution: Op = Op(
    name="convolution",
    doc="x (N, C, ...) correlated with a weight (O, C / groups, ...), not padded: (N, O, ...).",
    infer=_infer,
    evaluate=_evaluate,
    lower=_lower,
    vjp=_vjp,
    samples=_samples,
    reads=Reads.IN_PLACE,
    is_stored=True,
)
