"""Modules: the parts of a model that own weights.

A module is a plain object whose attributes are parameters, modules, or lists of modules. The path
of attributes that leads to a parameter is the parameter's name, e.g. `layers.0.mlp.up_proj.weight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl import functions as f
from models.dsl.graph import Parameter, Tensor
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator


def parameter(*shape: int, dtype: DType) -> Tensor:
    """A void weight."""
    return Tensor(TensorType(shape, dtype), Parameter())


class Module:
    """Base of all modules. Knows how to find its parameters, and nothing else."""

    def parameters(self) -> dict[str, Tensor]:
        """Every parameter in and below this module, by its path of attributes."""
        return dict(self._named(""))

    def _named(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        for name, value in vars(self).items():
            for path, part in _parts(prefix + name, value):
                if isinstance(part, Module):
                    yield from part._named(f"{path}.")
                elif isinstance(part, Tensor) and isinstance(part.origin, Parameter):
                    yield path, part


def _parts(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        yield from ((f"{path}.{i}", item) for i, item in enumerate(value))
    else:
        yield path, value


class Matrix(Module):
    """A weight of `rows` x `columns`, kept as `storage`: f32, bf16, or i8 with a scale a row.

    weight  (rows, columns)
    scale   (rows,) f32, only for i8: the real weight is weight * scale
    """

    def __init__(self, rows: int, columns: int, storage: DType) -> None:
        self.weight = parameter(rows, columns, dtype=storage)
        self.scale = parameter(rows, dtype=DType.F32) if storage is DType.I8 else None


class Linear(Matrix):
    """y = x W^T, without a bias."""

    def __init__(self, inputs: int, outputs: int, storage: DType) -> None:
        super().__init__(outputs, inputs, storage)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) f32 -> (..., outputs) f32."""
        return f.linear(x, self.weight, self.scale)


class Embedding(Matrix):
    """A table of vectors, which may also serve as the output head (a tied head)."""

    def __call__(self, ids: Tensor) -> Tensor:
        """i32 (...) -> f32 (..., columns)."""
        return f.embedding(ids, self.weight, self.scale)

    def logits(self, x: Tensor) -> Tensor:
        """f32 (..., columns) -> f32 (..., rows)."""
        return f.linear(x, self.weight, self.scale)


class RMSNorm(Module):
    """Root-mean-square normalisation of the last axis, times a learned factor."""

    def __init__(self, width: int, eps: float) -> None:
        self.weight = parameter(width, dtype=DType.F32)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """f32 (..., width) -> f32 (..., width)."""
        return f.rms_norm(x, self.weight, eps=self.eps)
