"""Convolution layers, along one axis for each axis of their kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn.module import Module, parameter

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import DType

__all__ = ["Convolution", "TransposedConvolution"]


class Convolution(Module):
    """PyTorch's Conv1d, Conv2d or Conv3d, by the rank of `kernel`.

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
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.weight = parameter(outputs, inputs // groups, *kernel, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs, ...) -> (N, outputs, ...)."""
        return f.convolution(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class TransposedConvolution(Module):
    """PyTorch's ConvTranspose1d, 2d or 3d, by the rank of `kernel`.

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
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.weight = parameter(inputs, outputs // groups, *kernel, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.output_padding = output_padding
        self.groups = groups

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs, ...) -> (N, outputs, ...)."""
        return f.transposed_convolution(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            output_padding=self.output_padding,
            groups=self.groups,
        )
