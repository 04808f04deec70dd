"""Layers that multiply by a matrix, or read its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl import functions as f
from models.dsl.nn.module import Module, parameter
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["Embedding", "Linear", "Matrix"]


class Matrix(Module):
    """A weight of `rows` x `columns`, kept as `storage`: f32, bf16, or i8 with a scale a row.

    weight  (rows, columns)
    scale   (rows,) f32, only for i8: the real weight is weight * scale
    """

    def __init__(self, rows: int, columns: int, storage: DType) -> None:
        self.weight = parameter(rows, columns, dtype=storage)
        self.scale = parameter(rows, dtype=DType.F32) if storage is DType.I8 else None


class Linear(Matrix):
    """y = x W^T, or x W^T + b.

    bias  (outputs,), of the weight's dtype; beside a weight of i8, f32
    """

    def __init__(self, inputs: int, outputs: int, storage: DType, *, bias: bool = False) -> None:
        super().__init__(outputs, inputs, storage)
        kept = DType.F32 if storage is DType.I8 else storage
        self.bias = parameter(outputs, dtype=kept) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs), in the dtype of x: see `f.linear`."""
        return f.linear(x, self.weight, self.scale, self.bias)


class Embedding(Matrix):
    """A table of vectors, which may also serve as the output head (a tied head)."""

    def __call__(self, ids: Tensor) -> Tensor:
        """i32 (...) -> f32 (..., columns)."""
        return f.embedding(ids, self.weight, self.scale)

    def logits(self, x: Tensor) -> Tensor:
        """f32 (..., columns) -> f32 (..., rows)."""
        return f.linear(x, self.weight, self.scale)
