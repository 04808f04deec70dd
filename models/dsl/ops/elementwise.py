"""Elementwise ops: the result has the shape of the inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.graph import OPERATORS, Apply
from hearthd.models.dsl.ops.creation import full_like
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
    zero_gradient,
)
from hearthd.models.dsl.ops.samples import distinct, integers, normal, positive
from hearthd.models.dsl.types import FLOATS, NUMBERS, DType, NoGradientError, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "absolute",
    "add",
    "barrier",
    "bitwise_and",
    "bitwise_or",
    "compare",
    "convert",
    "cosine",
    "divide",
    "erf",
    "exponential",
    "exponential_minus_one",
    "floor",
    "log",
    "log_plus_one",
    "logical_and",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "power",
    "remainder",
    "round_",
    "select",
    "shift_left",
    "shift_right",
    "sign",
    "sine",
    "sqrt",
    "stop_gradient",
    "subtract",
    "tanh",
]

_COMPARISONS: dict[str, Callable[[Array, Array], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _same_types(
    types: Types, count: int, dtypes: Collection[DType] = frozenset(DType)
) -> TensorType:
    first, *others = operands(types, count)
    require(all(other == first for other in others), "inputs of one type")
    require(first.dtype in dtypes, f"one of {', '.join(sorted(known.label for known in dtypes))}")
    return first


def unary(
    name: str,
    doc: str,
    evaluate: Callable[[Array], Array],
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor] | str,
    *,
    sample: Callable[..., Array] = normal,
    dtypes: Collection[DType] = FLOATS,
    mlir: str = "",
) -> Op:
    """A row of the table of unary ops.

    `gradient` takes (upstream g, input x, output y), or is the reason why there is none. `mlir` is
    the operation, if it is not StableHLO's of the same name.
    """

    def vjp(
        upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
    ) -> tuple[Tensor | None, ...]:
        assert not isinstance(gradient, str)
        return (gradient(upstream, inputs[0], output),)

    return Op(
        name=name,
        doc=doc,
        infer=lambda types, _: _same_types(types, 1, dtypes),
        evaluate=lambda arrays, _: evaluate(arrays[0]),
        lower=lambda *_: Lowering(mlir or f"stablehlo.{name}"),
        vjp=NoGradient(gradient) if isinstance(gradient, str) else vjp,
        samples=lambda rng: [Sample((sample(rng, 3, 5),)), Sample((sample(rng, 2, 1, 4, 3),))],
        reads=Reads.IN_PLACE,
        is_stored=False,
    )


def binary(
    name: str,
    doc: str,
    evaluate: Callable[[Array, Array], Array],
    gradient: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | str,
    *,
    sample: Callable[..., Array] = normal,
    dtypes: Collection[DType] = NUMBERS,
    mlir: str = "",
) -> Op:
    """A row of the table of binary ops on two inputs of one type.

    `gradient` takes (upstream g, inputs x and y, output z), or is the reason why there is none.
    `mlir` is the operation, if it is not StableHLO's of the same name.
    """

    def vjp(
        upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
    ) -> tuple[Tensor | None, ...]:
        assert not isinstance(gradient, str)
        return gradient(upstream, inputs[0], inputs[1], output)

    return Op(
        name=name,
        doc=doc,
        infer=lambda types, _: _same_types(types, 2, dtypes),
        evaluate=lambda arrays, _: evaluate(arrays[0], arrays[1]),
        lower=lambda *_: Lowering(mlir or f"stablehlo.{name}"),
        vjp=NoGradient(gradient) if isinstance(gradient, str) else vjp,
        samples=lambda rng: [
            Sample(tuple(sample(rng, 2, 3, 5))),
            Sample(tuple(sample(rng, 2, 2, 4, 1, 3))),
        ],
        reads=Reads.IN_PLACE,
        is_stored=False,
    )


def _chosen(g: Tensor, x: Tensor, _: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The input that is the output takes the gradient; of two equal ones, the first."""
    first, zero = compare(x, z, direction="EQ"), full_like(g, 0.0)
    return select(first, g, zero), select(first, zero, g)


def _power_gradient(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """y x^(y - 1) and x^y log(x); 0^0 and log(0) count as 0, so that nothing divides by zero."""
    zero, ones = full_like(x, 0.0), full_like(x, 1.0)
    exponent = select(compare(y, zero, direction="EQ"), y, y - ones)
    logarithm = log(select(compare(x, zero, direction="EQ"), ones, x))
    return g * (y * power(x, exponent)), g * (z * logarithm)


def _remainder(x: Array, y: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        result = np.fmod(x, y)
    return result if DType.of(x.dtype).is_float else np.where(y == 0, x, result)


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype))


def _booleans(rng: np.random.Generator, *shape: int) -> Array:
    return rng.random(size=shape) < 0.5


def _shifts(rng: np.random.Generator, *shape: int) -> Array:
    """i32 of both signs, and then 0 to 7 places."""
    x = rng.integers(-100, 100, size=shape, dtype=np.int32)
    x[-1] &= 7
    return x


def _shifted_right(x: Array, y: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(np.right_shift(x.view(unsigned), y.view(unsigned)).view(x.dtype))


_ERF_SLOPE = 2.0 / math.sqrt(math.pi)  # at 0
_INTEGERS = frozenset({DType.I8, DType.I32, DType.I64})
_STEPS = "its derivative is zero or undefined"
_BITS = "its inputs are integers"

# fmt: off

# --- unary: the gradient is a function of (g, x, y)

negate: Op = unary("negate", "-x.", np.negative, lambda g, x, y: -g, dtypes=NUMBERS)
exponential: Op = unary("exponential", "e to the power of x.", np.exp, lambda g, x, y: g * y)
exponential_minus_one: Op = unary("exponential_minus_one", "e to the power of x, minus 1; precise "
                                  "near 0.", np.expm1, lambda g, x, y: g + g * y)
log: Op = unary("log", "Natural logarithm of x.", np.log, lambda g, x, y: g / x, sample=positive)
log_plus_one: Op = unary("log_plus_one", "Natural logarithm of 1 + x; precise near 0.", np.log1p,
                         lambda g, x, y: g / (x + 1.0), sample=positive)
tanh: Op = unary("tanh", "Hyperbolic tangent of x.", np.tanh, lambda g, x, y: g - g * (y * y))
sine: Op = unary("sine", "Sine of x, in radians.", np.sin, lambda g, x, y: g * cosine(x))
cosine: Op = unary("cosine", "Cosine of x, in radians.", np.cos, lambda g, x, y: -(g * sine(x)))
sqrt: Op = unary("sqrt", "Square root of x.", np.sqrt, lambda g, x, y: g * 0.5 / y, sample=positive)
absolute: Op = unary("absolute", "Absolute value of x.", np.abs, lambda g, x, y: g * sign(x),
                     sample=distinct, mlir="stablehlo.abs")
erf: Op = unary("erf", "Error function of x.", _erf,
                lambda g, x, y: g * (exponential(-(x * x)) * _ERF_SLOPE), mlir="chlo.erf")
sign: Op = unary("sign", "Sign of x: -1, 0 or 1.", np.sign, _STEPS)
floor: Op = unary("floor", "Largest integer that is at most x.", np.floor, _STEPS)
round_: Op = unary("round", "Integer nearest to x; the even one of two.", np.rint, _STEPS,
                   mlir="stablehlo.round_nearest_even")

# --- binary: the gradients are a function of (g, x, y, z)

add: Op = binary("add", "x + y.", np.add, lambda g, x, y, z: (g, g))
subtract: Op = binary("subtract", "x - y.", np.subtract, lambda g, x, y, z: (g, -g))
multiply: Op = binary("multiply", "x * y.", np.multiply, lambda g, x, y, z: (g * y, g * x))
divide: Op = binary("divide", "x / y.", np.divide, lambda g, x, y, z: (g / y, -(g * (z / y))),
                    sample=positive, dtypes=FLOATS)
power: Op = binary("power", "x to the power of y; NaN if x is negative and y is not an integer.",
                   np.power, _power_gradient, sample=positive, dtypes=FLOATS)
maximum: Op = binary("maximum", "Larger of x and y.", np.maximum, _chosen, sample=distinct)
minimum: Op = binary("minimum", "Smaller of x and y.", np.minimum, _chosen, sample=distinct)
remainder: Op = binary("remainder", "Remainder of x / y, with the sign of x. Of integers, x where "
                       "y is 0.", _remainder, _BITS, sample=integers)
logical_and: Op = binary("logical_and", "Whether both x and y are true.", np.logical_and,
                         "its inputs are booleans", sample=_booleans, dtypes={DType.BOOL},
                         mlir="stablehlo.and")
bitwise_and: Op = binary("bitwise_and", "Bits that both x and y have.", np.bitwise_and, _BITS,
                         sample=integers, dtypes=_INTEGERS, mlir="stablehlo.and")
bitwise_or: Op = binary("bitwise_or", "Bits that x or y has.", np.bitwise_or, _BITS,
                        sample=integers, dtypes=_INTEGERS, mlir="stablehlo.or")
shift_left: Op = binary("shift_left", "Bits of x, y places higher.", np.left_shift, _BITS,
                        sample=_shifts, dtypes=_INTEGERS)
shift_right: Op = binary("shift_right", "Bits of x, y places lower; zeros come in.",
                         _shifted_right, _BITS, sample=_shifts, dtypes=_INTEGERS,
                         mlir="stablehlo.shift_right_logical")

OPERATORS |= {
    "x + y": add, "x - y": subtract, "x * y": multiply, "x / y": divide, "x ** y": power,
    "-x": negate,
}

# fmt: on

COMPUTE_BARRIER = "iree_tensor_ext.compute_barrier.start"

# The compiler fuses nothing across a barrier, so rounding on one side (a multiply-add, the order
# of a sum) cannot depend on the other.
barrier: Op = Op(
    name="barrier",
    doc="x, unchanged: the compiler fuses nothing across a barrier.",
    infer=lambda types, _: _same_types(types, 1),
    evaluate=lambda arrays, _: arrays[0],
    lower=lambda *_: Lowering(COMPUTE_BARRIER),
    vjp=lambda upstream, *_: (barrier(upstream),),
    samples=lambda rng: [Sample((normal(rng, 3, 5),)), Sample((integers(rng, 2, 1, 4),))],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

stop_gradient: Op = Op(
    name="stop_gradient",
    doc="x, unchanged: its gradient is zero.",
    infer=lambda types, _: _same_types(types, 1),
    evaluate=lambda arrays, _: arrays[0],
    lower=lambda *_: Lowering("stablehlo.reshape"),
    vjp=zero_gradient,
    samples=lambda rng: [Sample((normal(rng, 3, 5),)), Sample((integers(rng, 2, 1, 4),))],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- ops that mix dtypes


def _infer_compare(types: Types, attrs: Attrs) -> TensorType:
    require(attrs["direction"] in _COMPARISONS, f"a direction of {', '.join(_COMPARISONS)}")
    return _same_types(types, 2).with_dtype(DType.BOOL)


def _infer_select(types: Types, _: Attrs) -> TensorType:
    choice, *values = operands(types, 3)
    require(
        choice.dtype is DType.BOOL and choice.shape == values[0].shape,
        "a bool input and two others of its shape",
    )
    return _same_types(tuple(values), 2)


compare: Op = Op(
    name="compare",
    doc="Whether x stands in the relation `direction` to y, as booleans.",
    infer=_infer_compare,
    evaluate=lambda arrays, attrs: np.asarray(_COMPARISONS[attrs["direction"]](*arrays)),
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.compare",
        f"comparison_direction = #stablehlo<comparison_direction {attrs['direction']}>",
    ),
    vjp=NoGradient("its result is a boolean"),
    samples=lambda rng: [
        Sample((normal(rng, 3, 4), normal(rng, 3, 4)), {"direction": "LT"}),
        Sample((integers(rng, 50), integers(rng, 50)), {"direction": "EQ"}),
        Sample((integers(rng, 50), integers(rng, 50)), {"direction": "LE"}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)


def _comparison(symbol: str, direction: str) -> Callable[[Tensor, Tensor], Tensor]:
    def apply(x: Tensor, y: Tensor) -> Tensor:
        return compare(x, y, direction=direction)

    apply.__doc__ = f"Whether x {symbol} y, as booleans."
    return apply


OPERATORS |= {
    f"x {symbol} y": _comparison(symbol, direction)
    for symbol, direction in (("<", "LT"), ("<=", "LE"), (">", "GT"), (">=", "GE"))
}

select: Op = Op(
    name="select",
    doc="The second input where the first is true, else the third.",
    infer=_infer_select,
    evaluate=lambda arrays, _: np.where(*arrays),
    lower=lambda *_: Lowering("stablehlo.select"),
    vjp=lambda g, xs, y, _: (
        None,
        select(xs[0], g, full_like(g, 0.0)),
        select(xs[0], full_like(g, 0.0), g),
    ),
    samples=lambda rng: [
        Sample((rng.random((3, 4)) < 0.5, normal(rng, 3, 4), normal(rng, 3, 4))),
        Sample((rng.random((2, 3, 1)) < 0.5, integers(rng, 2, 3, 1), integers(rng, 2, 3, 1))),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)


def _convert_gradient(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
) -> tuple[Tensor | None, ...]:
    """The upstream in the input's dtype: not rounded, where it was rounded from that dtype."""
    if not output.dtype.is_float:
        raise NoGradientError("convert has no gradient: its result is an integer")
    dtype, wide = inputs[0].dtype, unrounded(upstream)
    if wide.dtype is dtype:
        return (wide,)
    return (convert(upstream, dtype=dtype) if dtype.is_float else None,)


def unrounded(x: Tensor) -> Tensor:
    """The wider float that x was rounded from by `convert`; x itself if it was not."""
    source = x.inputs[0] if isinstance(x.origin, Apply) and x.origin.op is convert else x
    is_wider = source.dtype.is_float and source.dtype.numpy.itemsize > x.dtype.numpy.itemsize
    return source if is_wider else x


convert: Op = Op(
    name="convert",
    doc="x in another dtype; a float becomes an integer by dropping its fraction.",
    infer=lambda types, attrs: operands(types, 1)[0].with_dtype(attrs["dtype"]),
    evaluate=lambda arrays, attrs: arrays[0].astype(attrs["dtype"].numpy),
    lower=lambda *_: Lowering("stablehlo.convert"),
    vjp=_convert_gradient,
    samples=lambda rng: [
        Sample((normal(rng, 3, 4),), {"dtype": DType.BF16}),
        Sample((integers(rng, 5),), {"dtype": DType.F32}),
        Sample((normal(rng, 2, 3),), {"dtype": DType.F32}),
        Sample((np.rint(9 * normal(rng, 3, 1, 4)),), {"dtype": DType.I8}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)
