"""Modules and their parameters.

A module is a plain object whose attributes are parameters, modules, or lists of modules. The path
of attributes that leads to a parameter is the parameter's name, e.g. `layers.0.mlp.up_proj.weight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Parameter, Tensor
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Module", "parameter"]


def parameter(*shape: int, dtype: DType) -> Tensor:
    """A weight without data: a symbolic tensor. Its attribute path gives it a name."""
    return Tensor(TensorType(shape, dtype), Parameter())


class Module:
    """Base of all modules: finds the parameters in and below it."""

    def parameters(self) -> dict[str, Tensor]:
        """Every parameter in and below this module, by its path of attributes."""
        return dict(self._named(""))

    def _named(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        for name, value in vars(self).items():
            for path, child in _parts(prefix + name, value):
                if isinstance(child, Module):
                    yield from child._named(f"{path}.")
                elif isinstance(child, Tensor) and isinstance(child.origin, Parameter):
                    yield path, child


def _parts(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        yield from ((f"{path}.{i}", item) for i, item in enumerate(value))
    else:
        yield path, value
