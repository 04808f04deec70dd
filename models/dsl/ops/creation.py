"""Ops that make a tensor out of attributes alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.graph import OPERATORS
from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    NoGradient,
    Op,
    Reads,
    Sample,
    Types,
    operands,
    require,
)
from hearthd.models.dsl.types import NUMBERS, DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["constant", "full", "full_like", "iota"]

# A dense constant sits in the program's text; anything larger belongs to the parameters.
MAX_CONSTANT_SIZE = 4096

_NOTHING_TO_DIFFERENTIATE = NoGradient("it has no inputs")


def _infer_full(types: Types, attrs: Attrs) -> TensorType:
    operands(types, 0)
    dtype: DType = attrs["dtype"]
    require(dtype.is_float or _is_in(dtype, attrs["value"]), f"a value that {dtype.label} has")
    return TensorType(tuple(attrs["shape"]), dtype)


def _is_in(dtype: DType, value: float) -> bool:
    """Whether a dtype other than a float has this value."""
    if not math.isfinite(value) or int(value) != value:
        return False
    if dtype is DType.BOOL:
        return value in (0, 1)
    ends = np.iinfo(dtype.numpy)
    return bool(ends.min <= value <= ends.max)


def _infer_iota(types: Types, attrs: Attrs) -> TensorType:
    operands(types, 0)
    result = TensorType(tuple(attrs["shape"]), attrs["dtype"])
    require(result.dtype in NUMBERS, "a dtype of numbers")
    require(0 <= attrs["axis"] < result.rank, f"an axis below {result.rank}")
    return result


def _infer_constant(types: Types, attrs: Attrs) -> TensorType:
    operands(types, 0)
    value: Array = attrs["value"]
    require(
        value.size <= MAX_CONSTANT_SIZE,
        f"at most {MAX_CONSTANT_SIZE} elements, got {value.size}: make it a parameter",
    )
    return TensorType(value.shape, DType.of(value.dtype))


def _evaluate_iota(_: tuple[Array, ...], attrs: Attrs) -> Array:
    shape, axis = attrs["shape"], attrs["axis"]
    along = np.arange(shape[axis], dtype=attrs["dtype"].numpy)
    return np.broadcast_to(
        along.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    )


def _lower_constant(_: Types, result: TensorType, attrs: Attrs) -> Lowering:
    data = np.ascontiguousarray(attrs["value"]).tobytes().hex().upper()
    return Lowering("stablehlo.constant", f'value = dense<"0x{data}"> : {result.mlir}')


full: Op = Op(
    name="full",
    doc="A tensor of shape `shape`, every element `value`.",
    infer=_infer_full,
    evaluate=lambda _, attrs: np.broadcast_to(
        np.full((), attrs["value"], dtype=attrs["dtype"].numpy), attrs["shape"]
    ),
    lower=lambda _, result, attrs: Lowering(
        "stablehlo.constant",
        f"value = dense<{literal(attrs['value'], result.dtype)}> : {result.mlir}",
    ),
    vjp=_NOTHING_TO_DIFFERENTIATE,
    samples=lambda _: [
        Sample((), {"shape": (2, 3), "dtype": DType.F32, "value": 1.5}),
        Sample((), {"shape": (4,), "dtype": DType.I32, "value": -7}),
        Sample((), {"shape": (), "dtype": DType.F32, "value": -np.inf}),
        Sample((), {"shape": (2,), "dtype": DType.BOOL, "value": 1}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

iota: Op = Op(
    name="iota",
    doc="A tensor that counts 0, 1, 2, ... along `axis`.",
    infer=_infer_iota,
    evaluate=_evaluate_iota,
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.iota", f"iota_dimension = {attrs['axis']} : i64"
    ),
    vjp=_NOTHING_TO_DIFFERENTIATE,
    samples=lambda _: [
        Sample((), {"shape": (5,), "axis": 0, "dtype": DType.I32}),
        Sample((), {"shape": (2, 3, 4), "axis": 1, "dtype": DType.F32}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

constant: Op = Op(
    name="constant",
    doc="The array `value`, written into the program.",
    infer=_infer_constant,
    evaluate=lambda _, attrs: attrs["value"],
    lower=_lower_constant,
    vjp=_NOTHING_TO_DIFFERENTIATE,
    samples=lambda rng: [
        Sample((), {"value": rng.normal(size=(3, 5)).astype(np.float32)}),
        Sample((), {"value": rng.integers(-9, 9, size=(7,), dtype=np.int32)}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)


def full_like(tensor: Tensor, value: float) -> Tensor:
    """A tensor of another's type, filled with one value."""
    return full(shape=tensor.shape, dtype=tensor.dtype, value=value)


OPERATORS["fill"] = full_like


def literal(value: float, dtype: DType) -> str:
    """A scalar in MLIR's syntax; floats as their bits, so that nothing is lost and -inf stays."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    bits = np.array(value, dtype=dtype.numpy).tobytes()[::-1].hex().upper()
    return f"0x{bits}"
