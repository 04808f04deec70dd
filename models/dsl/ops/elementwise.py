"""Ops that work on each element by itself: every input and the result have one shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from models.dsl.ops.creation import full_like
from models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    NoGradient,
    Op,
    Sample,
    Types,
    Vjp,
    operands,
    wanted,
)
from models.dsl.ops.samples import distinct, integers, normal, positive
from models.dsl.types import FLOATS, NUMBERS, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from models.dsl.graph import Tensor

__all__ = [
    "absolute",
    "add",
    "barrier",
    "compare",
    "convert",
    "cosine",
    "divide",
    "erf",
    "exponential",
    "exponential_minus_one",
    "floor",
    "log",
    "logical_and",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "power",
    "remainder",
    "select",
    "sign",
    "sine",
    "sqrt",
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
    wanted(all(given == first for given in others), "inputs of one type")
    wanted(first.dtype in dtypes, f"one of {', '.join(sorted(known.label for known in dtypes))}")
    return first


def _unary(
    name: str,
    doc: str,
    operation: str,
    evaluate: Callable[[Array], Array],
    vjp: Callable[[Tensor, Tensor, Tensor], Tensor] | NoGradient,
    sample: Callable[..., Array] = normal,
    dialect: str = "stablehlo",
) -> Op:
    """A row of the table of unary float ops; `vjp` takes (upstream, input, output)."""

    def gradient(
        upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
    ) -> tuple[Tensor | None, ...]:
        assert not isinstance(vjp, NoGradient)
        return (vjp(upstream, inputs[0], output),)

    return Op(
        name=name,
        doc=doc,
        infer=lambda types, _: _same_types(types, 1, FLOATS),
        evaluate=lambda arrays, _: evaluate(arrays[0]),
        lower=lambda *_: Lowering(f"{dialect}.{operation}"),
        vjp=vjp if isinstance(vjp, NoGradient) else gradient,
        samples=lambda rng: [Sample((sample(rng, 3, 5),)), Sample((sample(rng, 2, 1, 4, 3),))],
    )


def _binary(
    name: str,
    doc: str,
    stablehlo: str,
    evaluate: Callable[[Array, Array], Array],
    vjp: Vjp | NoGradient,
    sample: Callable[..., Array] = normal,
    dtypes: Collection[DType] = NUMBERS,
) -> Op:
    """A row of the table of binary ops on two inputs of one type."""
    return Op(
        name=name,
        doc=doc,
        infer=lambda types, _: _same_types(types, 2, dtypes),
        evaluate=lambda arrays, _: evaluate(arrays[0], arrays[1]),
        lower=lambda *_: Lowering(f"stablehlo.{stablehlo}"),
        vjp=vjp,
        samples=lambda rng: [
            Sample(tuple(sample(rng, 2, 3, 5))),
            Sample(tuple(sample(rng, 2, 2, 4, 1, 3))),
        ],
    )


# --- unary

negate: Op = _unary("negate", "-x.", "negate", np.negative, lambda g, x, y: negate(g))
exponential: Op = _unary(
    "exponential", "e to the power of x.", "exponential", np.exp, lambda g, x, y: multiply(g, y)
)
exponential_minus_one: Op = _unary(
    "exponential_minus_one",
    "e to the power of x, minus 1, precise near 0.",
    "exponential_minus_one",
    np.expm1,
    lambda g, x, y: add(g, multiply(g, y)),
)
log: Op = _unary(
    "log",
    "The natural logarithm of x.",
    "log",
    np.log,
    lambda g, x, y: divide(g, x),
    sample=positive,
)
tanh: Op = _unary(
    "tanh",
    "The hyperbolic tangent of x.",
    "tanh",
    np.tanh,
    lambda g, x, y: subtract(g, multiply(g, multiply(y, y))),
)
sine: Op = _unary(
    "sine", "The sine of x, in radians.", "sine", np.sin, lambda g, x, y: multiply(g, cosine(x))
)
cosine: Op = _unary(
    "cosine",
    "The cosine of x, in radians.",
    "cosine",
    np.cos,
    lambda g, x, y: negate(multiply(g, sine(x))),
)
sqrt: Op = _unary(
    "sqrt",
    "The square root of x.",
    "sqrt",
    np.sqrt,
    lambda g, x, y: divide(multiply(g, full_like(y, 0.5)), y),
    sample=positive,
)
absolute: Op = _unary(
    "absolute",
    "The absolute value of x.",
    "abs",
    np.abs,
    lambda g, x, y: multiply(g, sign(x)),
    sample=distinct,
)
sign: Op = _unary(
    "sign", "-1, 0 or 1: the sign of x.", "sign", np.sign, NoGradient("a step: zero or undefined")
)
erf: Op = _unary(
    "erf",
    "The error function of x.",
    "erf",
    lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),
    lambda g, x, y: multiply(
        g,
        multiply(exponential(negate(multiply(x, x))), full_like(x, 2.0 / math.sqrt(math.pi))),
    ),
    dialect="chlo",
)
floor: Op = _unary(
    "floor",
    "The largest integer that is not above x.",
    "floor",
    np.floor,
    NoGradient("a staircase: zero or undefined"),
)


# The identity, across which a compiler fuses nothing: how it rounds on one side (a multiply-add,
# the order of a sum) then cannot depend on the other.
barrier: Op = Op(
    name="barrier",
    doc="The input, across which the compiler fuses nothing.",
    infer=lambda types, _: _same_types(types, 1),
    evaluate=lambda arrays, _: arrays[0],
    lower=lambda *_: Lowering("iree_tensor_ext.compute_barrier.start"),
    vjp=lambda upstream, *_: (upstream,),
    samples=lambda rng: [Sample((normal(rng, 3, 5),)), Sample((integers(rng, 2, 1, 4),))],
)

# --- binary

add: Op = _binary("add", "x + y.", "add", np.add, lambda g, xs, y, _: (g, g))
subtract: Op = _binary(
    "subtract", "x - y.", "subtract", np.subtract, lambda g, xs, y, _: (g, negate(g))
)
multiply: Op = _binary(
    "multiply",
    "x * y.",
    "multiply",
    np.multiply,
    lambda g, xs, y, _: (multiply(g, xs[1]), multiply(g, xs[0])),
)
divide: Op = _binary(
    "divide",
    "x / y.",
    "divide",
    np.divide,
    lambda g, xs, y, _: (divide(g, xs[1]), negate(multiply(g, divide(y, xs[1])))),
    sample=positive,
    dtypes=FLOATS,
)


def _vjp_chosen(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
) -> tuple[Tensor | None, ...]:
    """The input that is the output takes the gradient; of two equal ones, the first."""
    first = compare(inputs[0], output, direction="EQ")
    nothing = full_like(upstream, 0.0)
    return select(first, upstream, nothing), select(first, nothing, upstream)


maximum: Op = _binary(
    "maximum", "The larger of x and y.", "maximum", np.maximum, _vjp_chosen, sample=distinct
)
minimum: Op = _binary(
    "minimum", "The smaller of x and y.", "minimum", np.minimum, _vjp_chosen, sample=distinct
)


def _vjp_power(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, _: Attrs
) -> tuple[Tensor | None, ...]:
    """y x^(y - 1), and x^y log(x), which is 0 where x is. Where y is 0, no x divides."""
    x, y = inputs
    nothing, one = full_like(x, 0.0), full_like(x, 1.0)
    below = select(compare(y, nothing, direction="EQ"), y, subtract(y, one))
    logarithm = log(select(compare(x, nothing, direction="EQ"), one, x))
    return (
        multiply(upstream, multiply(y, power(x, below))),
        multiply(upstream, multiply(output, logarithm)),
    )


power: Op = _binary("power", "x to the power of y.", "power", np.power, _vjp_power, sample=positive)
remainder: Op = _binary(
    "remainder",
    "What is left of x after division by y, with the sign of x.",
    "remainder",
    lambda x, y: np.fmod(x, y),
    NoGradient("it is here for positions, which are integers"),
    sample=integers,
)
logical_and: Op = _binary(
    "logical_and",
    "Whether both x and y are true.",
    "and",
    np.logical_and,
    NoGradient("its inputs are booleans"),
    sample=lambda rng, *shape: rng.random(size=shape) < 0.5,
    dtypes={DType.BOOL},
)

# --- ops that mix dtypes


def _infer_compare(types: Types, attrs: Attrs) -> TensorType:
    wanted(attrs["direction"] in _COMPARISONS, f"a direction of {', '.join(_COMPARISONS)}")
    return _same_types(types, 2).with_dtype(DType.BOOL)


def _infer_select(types: Types, _: Attrs) -> TensorType:
    choice, *values = operands(types, 3)
    wanted(
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
)

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
)

convert: Op = Op(
    name="convert",
    doc="x in another dtype; a float becomes an integer by dropping its fraction.",
    infer=lambda types, attrs: operands(types, 1)[0].with_dtype(attrs["dtype"]),
    evaluate=lambda arrays, attrs: arrays[0].astype(attrs["dtype"].numpy),
    lower=lambda *_: Lowering("stablehlo.convert"),
    vjp=NoGradient("it leaves the dtype in which the gradient is taken"),
    samples=lambda rng: [
        Sample((normal(rng, 3, 4),), {"dtype": DType.BF16}),
        Sample((integers(rng, 5),), {"dtype": DType.F32}),
        Sample((np.rint(9 * normal(rng, 3, 1, 4)),), {"dtype": DType.I8}),
    ],
)
