"""Layers that multiply by a matrix, or read its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from models.dsl import functions as f
from models.dsl import grouped
from models.dsl.nn.module import Module, parameter
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["Embedding", "Linear", "Matrix", "Storage"]


# How a matrix is stored: plainly, or in groups.
Storage: TypeAlias = DType | grouped.Grouping


class Matrix(Module):
    """A weight of `rows` x `columns`, kept as `storage` says.

    weight  (rows, columns), of f32 or bf16
    scale   None

    In groups both have the shapes of models/dsl/grouped.py.
    """

    def __init__(self, rows: int, columns: int, storage: Storage) -> None:
        if isinstance(storage, DType):
            self.weight = parameter(rows, columns, dtype=storage)
            self.scale = None
        else:
            shape = grouped.weight_shape(rows, columns)
            self.weight = parameter(*shape, dtype=DType.I8)
            self.scale = parameter(*shape[:2], grouped.ROWS, dtype=DType.F16)


class Linear(Matrix):
    """y = x W^T, or x W^T + b.

    bias  (outputs,), of the weight's dtype; beside a weight in groups, f32
    """

    def __init__(self, inputs: int, outputs: int, storage: Storage, *, bias: bool = False) -> None:
        super().__init__(outputs, inputs, storage)
        kept = storage if isinstance(storage, DType) else DType.F32
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
