"""Functions whose intermediate values need more digits, or a wider range, than narrow floats."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Tensor
from hearthd.models.dsl.types import NARROW, DType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_f32"]

P = ParamSpec("P")
R = TypeVar("R")


def in_f32(function: Callable[P, R]) -> Callable[P, R]:
    """Compute a function of f16 or bf16 tensors in f32, and round each result once.

    Raises TypeRuleError, when the function is called, for floats of different dtypes.
    """

    @functools.wraps(function)
    def wide(*args: P.args, **kwargs: P.kwargs) -> R:
        every: tuple[object, ...] = (*args, *kwargs.values())
        floats = [
            argument
            for argument in every
            if isinstance(argument, Tensor) and argument.dtype.is_float
        ]
        dtypes = {tensor.dtype for tensor in floats}
        if len(dtypes) > 1:
            types = ", ".join(str(tensor.type) for tensor in floats)
            raise TypeRuleError(f"{function.__name__}({types}): expected floats of one dtype")
        if not dtypes & NARROW:
            return function(*args, **kwargs)
        (dtype,) = dtypes
        converted: Any = [_convert(argument, DType.F32) for argument in args]
        named: Any = {key: _convert(argument, DType.F32) for key, argument in kwargs.items()}
        result: Any = function(*converted, **named)
        if isinstance(result, tuple):
            return tuple(_convert(output, dtype) for output in result)  # type: ignore[return-value]
        return _convert(result, dtype)  # type: ignore[return-value]

    return wide


def _convert(value: object, dtype: DType) -> object:
    if not isinstance(value, Tensor) or not value.dtype.is_float:
        return value
    return ops.convert(value, dtype=dtype)
