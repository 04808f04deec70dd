"""Convolutions and pooling against PyTorch's: value and gradients, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from tests.models.dsl.functions.torch_agreement import (
    F,
    agree,
    few,
    normal,
    quick,
    seeds,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


# --- convolutions


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[int, list[int], list[int], dict[str, Any]]:
    """(spatial axes, x's extents, the kernel's, attributes) that fit together."""
    spatial = draw(few)
    kernel = [draw(few) for _ in range(spatial)]
    options = {
        name: tuple(draw(st.integers(low, 3)) for _ in range(spatial))
        for name, low in (("stride", 1), ("padding", 0), ("dilation", 1))
    }
    extents = []
    for size, apart, around in zip(kernel, options["dilation"], options["padding"], strict=True):
        least = max(1, (size - 1) * apart + 1 - 2 * around)
        extents.append(draw(st.integers(least, least + 4)))
    return spatial, extents, kernel, {**options, "groups": draw(few)}


@quick
@given(convolutions(), few, few, few, seeds)
def test_convolution(
    case: tuple[int, list[int], list[int], dict[str, Any]],
    batch: int,
    inputs: int,
    outputs: int,
    seed: int,
) -> None:
    spatial, extents, kernel, attrs = case
    groups = attrs["groups"]
    arrays = normal(
        seed,
        (batch, groups * inputs, *extents),
        (groups * outputs, inputs, *kernel),
        (groups * outputs,),
    )
    theirs = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    agree(
        lambda x, w, b: f.convolution(x, w, b, **attrs),
        lambda x, w, b: theirs(x, w, b, **attrs),
        *arrays,
    )


@quick
@given(convolutions(), few, few, few, seeds, st.data())
def test_transposed_convolution(
    case: tuple[int, list[int], list[int], dict[str, Any]],
    batch: int,
    inputs: int,
    outputs: int,
    seed: int,
    data: st.DataObject,
) -> None:
    spatial, extents, kernel, attrs = case
    groups, strides = attrs["groups"], attrs["stride"]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilation"], strict=True)]
    # Something must be left of the result when the padding is taken off.
    whole = [(e - 1) * s + r for e, s, r in zip(extents, strides, reach, strict=True)]
    attrs["padding"] = tuple(
        min(p, (w - 1) // 2) for p, w in zip(attrs["padding"], whole, strict=True)
    )
    attrs["output_padding"] = tuple(data.draw(st.integers(0, s - 1)) for s in strides)
    arrays = normal(
        seed,
        (batch, groups * inputs, *extents),
        (groups * inputs, outputs, *kernel),
        (groups * outputs,),
    )
    theirs = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
    agree(
        lambda x, w, b: f.transposed_convolution(x, w, b, **attrs),
        lambda x, w, b: theirs(x, w, b, **attrs),
        *arrays,
    )


# --- pooling and upsampling


@quick
@given(few, few, st.integers(0, 1), few, st.integers(5, 8), st.integers(5, 8), seeds)
def test_max_pool2d(
    size: int, stride: int, padding: int, dilation: int, height: int, width: int, seed: int
) -> None:
    """Of few different values, so that many elements of a window are equal."""
    padding = min(padding, size // 2)
    (x,) = normal(seed, (2, height + size, width + size))
    attrs = {"stride": stride, "padding": padding, "dilation": dilation}
    agree(
        lambda x: f.max_pool2d(x, size, **attrs),
        lambda x: F.max_pool2d(x, size, **attrs),
        np.rint(x),
    )


@quick
@given(few, few | st.none(), st.integers(0, 1), st.integers(4, 8), st.integers(4, 8), seeds)
def test_avg_pool2d(
    size: int, stride: int | None, padding: int, height: int, width: int, seed: int
) -> None:
    padding = min(padding, size // 2)
    agree(
        lambda x: f.avg_pool2d(x, size, stride=stride, padding=padding),
        lambda x: F.avg_pool2d(x, size, stride=stride, padding=padding),
        *normal(seed, (2, 3, height, width)),
    )


@quick
@given(few, st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), seeds)
def test_upsample2d(batch: int, height: int, width: int, scale: int, seed: int) -> None:
    (x,) = normal(seed, (batch, 2, height, width))
    agree(
        lambda x: f.upsample2d_nearest(x, scale),
        lambda x: F.interpolate(x, scale_factor=scale, mode="nearest"),
        x,
    )
    agree(
        lambda x: f.upsample2d_bilinear(x, scale),
        lambda x: F.interpolate(x, scale_factor=scale, mode="bilinear"),
        x,
    )
