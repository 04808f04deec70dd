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
    lower   None

    In groups the first two have the shapes of models/dsl/grouped.py; if `halved`, the weight is the
    upper half, and `lower` is the other.
    """

    def __init__(self, rows: int, columns: int, storage: Storage, *, halved: bool = False) -> None:
        self.scale = self.lower = None
        if isinstance(storage, DType):
            self.weight = parameter(rows, columns, dtype=storage)
        else:
            shape = (grouped.half_shape if halved else grouped.weight_shape)(rows, columns)
            self.weight = parameter(*shape, dtype=DType.I8)
            if halved:
                self.lower = parameter(*shape, dtype=DType.I8)
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
    """A table of vectors, or an output head, or both (a tied head)."""

    def __init__(self, rows: int, columns: int, storage: Storage) -> None:
        super().__init__(rows, columns, storage, halved=not isinstance(storage, DType))

    def __call__(self, ids: Tensor) -> Tensor:
        """i32 (...) -> f32 (..., columns)."""
        return f.embedding(ids, self.weight, self.scale, self.lower)

    def logits(self, x: Tensor, exact: Tensor | None = None) -> Tensor:
        """f32 (N, columns) -> f32 (N, rows); of `exact`, i32 (N,), see `f.logits`."""
        if self.scale is None or self.lower is None:
            return f.linear(x, self.weight, self.scale)
        return f.logits(x, self.weight, self.lower, self.scale, exact)
