"""Convolution layers, along one axis for each axis of their kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from typing_extensions import Unpack

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn.module import Module, parameter

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import DType

__all__ = ["Convolution", "TransposedConvolution"]


class Window(TypedDict, total=False):
    """How a kernel moves: one number for all axes, or one for each. See `f.convolution`."""

    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...]
    dilation: int | tuple[int, ...]


class TransposedWindow(Window, total=False):
    """See `f.transposed_convolution`."""

    output_padding: int | tuple[int, ...]


class Convolution(Module):
    """PyTorch's Conv1d, Conv2d or Conv3d, by the rank of `kernel`; `window` as in `f.convolution`.

    weight  (outputs, inputs / groups, *kernel)
    bias    (outputs,)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: tuple[int, ...],
        *,
        dtype: DType,
        groups: int = 1,
        bias: bool = True,
        **window: Unpack[Window],
    ) -> None:
        self.weight = parameter(outputs, inputs // groups, *kernel, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None
        self.groups = groups
        self.window = window

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs, ...) -> (N, outputs, ...)."""
        return f.convolution(x, self.weight, self.bias, groups=self.groups, **self.window)


class TransposedConvolution(Module):
    """ConvTranspose1d, 2d or 3d; `window` as in `f.transposed_convolution`.

    weight  (inputs, outputs / groups, *kernel)
    bias    (outputs,)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: tuple[int, ...],
        *,
        dtype: DType,
        groups: int = 1,
        bias: bool = True,
        **window: Unpack[TransposedWindow],
    ) -> None:
        self.weight = parameter(inputs, outputs // groups, *kernel, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None
        self.groups = groups
        self.window = window

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs, ...) -> (N, outputs, ...)."""
        return f.transposed_convolution(
            x, self.weight, self.bias, groups=self.groups, **self.window
        )
