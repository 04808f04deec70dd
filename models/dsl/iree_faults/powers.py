"""The fault of powers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.ops.record import Lowering
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.types import TensorType

# In f32, from %x and %y to %r.
_REGION = """
%zero = arith.constant 0.0 : f32
%one = arith.constant 1.0 : f32
%half = arith.constant 0.5 : f32
%infinity = arith.constant 0x7F800000 : f32
%nan = arith.constant 0x7FC00000 : f32
%size = math.absf %x : f32
%power = math.powf %size, %y : f32
%to_zero = arith.cmpf oeq, %y, %zero : f32
%of_one = arith.cmpf oeq, %size, %one : f32
%is_one = arith.ori %to_zero, %of_one : i1
%of_size = arith.select %is_one, %one, %power : f32
%y_floor = math.floor %y : f32
%y_whole = arith.cmpf oeq, %y_floor, %y : f32
%y_half = arith.mulf %y, %half : f32
%y_half_floor = math.floor %y_half : f32
%y_half_part = arith.cmpf one, %y_half_floor, %y_half : f32
%y_odd = arith.andi %y_whole, %y_half_part : i1
%x_sign = math.copysign %one, %x : f32
%x_minus = arith.cmpf olt, %x_sign, %zero : f32
%is_minus = arith.andi %x_minus, %y_odd : i1
%minus = arith.negf %of_size : f32
%signed = arith.select %is_minus, %minus, %of_size : f32
%x_below = arith.cmpf olt, %x, %zero : f32
%x_finite = arith.cmpf one, %size, %infinity : f32
%x_root = arith.andi %x_below, %x_finite : i1
%true = arith.constant true
%y_part = arith.xori %y_whole, %true : i1
%is_nan = arith.andi %x_root, %y_part : i1
%r = arith.select %is_nan, %nan, %signed : f32
"""


def negative_powers(result: TensorType) -> Lowering:
    """x to the power of y as C and NumPy have it, for every x and y.

    IREE's math.powf is exp(y log x): NaN where x is negative, where the exponent of 0 or an
    infinity is 0, and where the exponent of 1 is infinite.
    """
    scalar_type = result.dtype.mlir
    axes = ", ".join(f"d{axis}" for axis in range(result.rank))
    maps = ", ".join([f"affine_map<({axes}) -> ({axes})>"] * 3)
    parallel = ", ".join(["#linalg.iterator_type<parallel>"] * result.rank)
    if result.dtype is DType.F32:
        body = ["^bb0(%x: f32, %y: f32, %o: f32):", _REGION]
    else:
        body = [
            f"^bb0(%xn: {scalar_type}, %yn: {scalar_type}, %o: {scalar_type}):",
            f"%x = arith.extf %xn : {scalar_type} to f32",
            f"%y = arith.extf %yn : {scalar_type} to f32",
            _REGION.replace("%r =", "%rw ="),
            f"%r = arith.truncf %rw : f32 to {scalar_type}",
        ]
    return Lowering(
        "linalg.generic",
        f"indexing_maps = [{maps}], iterator_types = [{parallel}], "
        "operandSegmentSizes = array<i32: 2, 1>",
        region=" ".join([*body, f'"linalg.yield"(%r) : ({scalar_type}) -> ()']),
        into=0.0,
    )
