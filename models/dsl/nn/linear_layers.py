"""Layers that multiply by a matrix, or read its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn.module import Module, parameter
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["Embedding", "Linear", "RoutedLinear"]


class Linear(Module):
    """y = x W^T, or x W^T + b.

    weight  (outputs, inputs)
    bias    (outputs,), or None
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = False, dtype: DType = DType.F32
    ) -> None:
        self.weight = parameter(outputs, inputs, dtype=dtype)
        self.bias = parameter(outputs, dtype=dtype) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs), in the dtype of x."""
        return f.linear(x, self.weight, self.bias)


class RoutedLinear(Module):
    """y = x W^T, or x W^T + b, where each row has the matrices of some of the experts.

    weight  (experts * outputs, inputs)
    bias    (experts, outputs), or None
    """

    def __init__(
        self,
        experts: int,
        inputs: int,
        outputs: int,
        *,
        bias: bool = False,
        dtype: DType = DType.F32,
    ) -> None:
        self.weight = parameter(experts * outputs, inputs, dtype=dtype)
        self.bias = parameter(experts, outputs, dtype=dtype) if bias else None
        self.experts = experts

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows (M / C, inputs) and the C experts of each, i32 (M,) -> (M, outputs)."""
        y = f.routed_linear(x, chosen, self.weight, experts=self.experts)
        return y if self.bias is None else y + f.gather(self.bias, chosen, axis=0)


class Embedding(Module):
    """A table of vectors, which may also be the output head.

    weight  (rows, columns)
    """

    def __init__(self, rows: int, columns: int, *, dtype: DType = DType.F32) -> None:
        self.weight = parameter(rows, columns, dtype=dtype)

    def __call__(self, ids: Tensor) -> Tensor:
        """i32 (...) -> f32 (..., columns)."""
        return f.embedding(ids, self.weight)

    def logits(self, x: Tensor) -> Tensor:
        """f32 (N, columns) -> f32 (N, rows): the product of x with every vector."""
        return f.linear(x, self.weight)
