"""The exact values of a graph, and bounds of a program's rounding errors.

Each node is evaluated in f64, beside a bound of its error: what the errors of its inputs become,
by the worst case, and what it adds itself, in units in the last place of its dtype. A bound that
is infinite says nothing: there a rounding decides a comparison, an index or an overflow.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Graph, Tensor
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.ops.record import Loop
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Units in the last place that a function of one element may be off.
_FUNCTION_ULPS = 8.0
# Of an angle, what the compiler's sine and cosine may lose to it.
_ANGLE_LOSS = 2.0**-24
_MAX_ANGLE = 1e5
_F32 = 2.0**-24
_MOVES = frozenset(
    "reshape transpose reverse broadcast slice concatenate barrier".split()
)  # fmt: skip


@dataclass(frozen=True)
class Bounded:
    """Values, floats as f64, and the bound of each one's error."""

    value: Array
    error: Array


def exact(graph: Graph, arrays: Sequence[Array]) -> list[Bounded]:
    """The graph's results for these inputs, which are exact."""
    with np.errstate(all="ignore"):
        inputs = [Bounded(_wide(array), np.zeros(array.shape)) for array in arrays]
        return _evaluate(inlined(graph), inputs)


def unit(dtype: DType) -> float:
    """Half of the distance from 1 to the next number; 0 of an integer dtype."""
    if not dtype.is_float:
        return 0.0
    return float(ml_dtypes.finfo(dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]


def tiny(dtype: DType) -> float:
    """The least normal number: below it, a program may take numbers for zero."""
    if not dtype.is_float:
        return 0.0
    return float(ml_dtypes.finfo(dtype.numpy).tiny)  # type: ignore[no-untyped-call]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if DType.of(array.dtype).is_float else array


def _evaluate(graph: Graph, inputs: Sequence[Bounded]) -> list[Bounded]:
    known = {id(tensor): array for tensor, array in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        sources = [
            _flushed(known[id(source)], source.dtype) if node.origin.op.name not in _MOVES
            else known[id(source)]
            for source in node.inputs
        ]  # fmt: skip
        result = _node(node, sources)
        known[id(node)] = _in_range(result, node.dtype)
    return [known[id(output)] for output in graph.outputs]


def _size(value: Array) -> Array:
    """The magnitude of finite values, which are rounded; 0 for others."""
    return np.where(np.isfinite(value), np.abs(value), 0.0)


def _flushed(array: Bounded, dtype: DType) -> Bounded:
    """A subnormal may count as zero."""
    if not dtype.is_float:
        return array
    size = np.abs(array.value)
    return Bounded(array.value, array.error + np.where(size < tiny(dtype), size, 0.0))


def _in_range(array: Bounded, dtype: DType) -> Bounded:
    """An infinite bound near the end of the range, where earlier steps may overflow."""
    if not dtype.is_float:
        return array
    largest = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
    size = np.abs(array.value)
    outside = np.isfinite(size) & (size + array.error > largest)
    error = np.where(outside | np.isnan(array.error), np.inf, array.error)
    # No rounding makes a number of an infinity or of NaN; an unknown step before may.
    value = np.where(outside, np.copysign(np.inf, array.value), array.value)
    error = np.where(np.isfinite(array.value) | np.isinf(error), error, 0.0)
    return Bounded(value, error + np.where(size < tiny(dtype), size, 0.0))


def _node(node: Tensor, sources: list[Bounded]) -> Bounded:
    assert isinstance(node.origin, Apply)
    op, attrs = node.origin.op, dict(node.origin.attrs)
    values = tuple(source.value for source in sources)
    errors = tuple(source.error for source in sources)
    if op.name in _RULES:
        return _RULES[op.name](node, values, errors, attrs)
    if not sources:
        value = _wide(op.evaluate((), attrs))
        return Bounded(value, np.zeros(value.shape))
    if op.name in _MOVES:
        return Bounded(op.evaluate(values, attrs), np.asarray(op.evaluate(errors, attrs)))
    value = op.evaluate(values, attrs)
    if node.inputs[0].dtype.is_float and op.name in _MONOTONE:
        (x,), (e,) = values, errors
        return Bounded(value, _swing(lambda x: op.evaluate((x,), attrs), x, e, value)
                       + _FUNCTION_ULPS * unit(node.dtype) * _size(value)
                       + _MONOTONE[op.name] * _F32)  # fmt: skip
    if node.dtype.is_float:
        raise NotImplementedError(f"{op.name} has no error bound")
    return Bounded(value, _all_or_nothing(value, errors))


def _swing(function: Callable[[Array], Array], x: Array, e: Array, y: Array) -> Array:
    """How far a rising or falling function moves within the error of its argument."""
    moved = [np.abs(function(x + side) - y) for side in (e, -e)]
    swing = np.maximum(*moved)
    return np.where(e == 0, 0.0, np.where(np.isnan(swing), np.inf, swing))


def _all_or_nothing(value: Array, errors: Sequence[Array]) -> Array:
    """No error where no input has one, else any."""
    doubt = np.zeros(value.shape, bool)
    for error in errors:
        doubt |= np.broadcast_to(error > 0, value.shape)
    return np.where(doubt, np.inf, 0.0)


# The functions of one element that rise or fall throughout, with an absolute error in f32 units.
_MONOTONE: Mapping[str, float] = {
    "negate": 0, "exponential": 0, "exponential_minus_one": 0, "log": 2, "tanh": 0, "sqrt": 0,
    "erf": 1, "sign": 0, "floor": 0, "round": 0,
}  # fmt: skip

# rule(node, values, errors, attrs) -> the result
_Rule: TypeAlias = "Callable[[Tensor, Any, Any, Any], Bounded]"
_RULES: dict[str, _Rule] = {}


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def register(function: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


@_rule("absolute")
def _absolute(_: Tensor, values: Any, errors: Any, __: Any) -> Bounded:
    return Bounded(np.abs(values[0]), errors[0])


@_rule("sine", "cosine")
def _angle(node: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    (x,), (e,) = values, errors
    assert isinstance(node.origin, Apply)
    value = node.origin.op.evaluate(values, attrs)
    error = e + np.abs(x) * _ANGLE_LOSS + 4 * _F32 + 2 * unit(node.dtype) * _size(value)
    return Bounded(value, np.where(np.abs(x) > _MAX_ANGLE, np.inf, error))


@_rule("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power")
def _binary(node: Tensor, values: Any, errors: Any, _: Any) -> Bounded:
    assert isinstance(node.origin, Apply)
    name = node.origin.op.name
    (x, y), (ex, ey) = values, errors
    value = np.asarray(node.origin.op.evaluate(values, {}))
    if not node.dtype.is_float:
        return Bounded(value, _all_or_nothing(value, errors))
    size = _size(value)
    match name:
        case "add" | "subtract":
            error = ex + ey + unit(node.dtype) * size
        case "multiply":
            error = np.abs(x) * ey + np.abs(y) * ex + ex * ey + unit(node.dtype) * size
            # A factor that may be zero and an infinite one.
            error = np.where(np.isnan(error), _all_or_nothing(value, errors), error)
        case "divide":
            least = np.abs(y) - ey
            error = (ex + size * ey) / least + 2 * unit(node.dtype) * size
            error = np.where(np.isnan(error), _all_or_nothing(value, errors), error)
            # The sign of a zero is not kept.
            error = np.where((least <= 0) & ~((x == 0) & (ex == 0) & (ey == 0)), np.inf, error)
        case "maximum" | "minimum":
            error = np.maximum(ex, ey)
        case "remainder":
            error = np.where((ex > 0) | (ey > 0), np.inf, 0.0)
        case _:
            error = _power_error(node, (x, y), (ex, ey), value)
    return Bounded(value, error)


def _power_error(node: Tensor, values: Any, errors: Any, value: Array) -> Array:
    (x, y), (ex, ey) = values, errors
    sides = itertools.product((-1, 1), (-1, 1))
    corners = [np.abs(np.power(x + a * ex, y + b * ey) - value) for a, b in sides]
    swing = np.max(corners, axis=0)
    logarithm = np.abs(y * np.log(np.abs(x)))
    logarithm = np.where(np.isfinite(logarithm), logarithm, 0.0)
    # exp(y log x), in f32
    units = unit(node.dtype) * _FUNCTION_ULPS + 4 * _F32 * logarithm
    error = np.where((ex == 0) & (ey == 0), 0.0, swing) + units * _size(value)
    doubt = ((x - ex <= 0) & (ex > 0)) | ((x <= 0) & (ey > 0))
    zero = (x == 0) & (y < 0)  # the sign of a zero is not kept
    return np.where(doubt | zero | np.isnan(swing) & ((ex > 0) | (ey > 0)), np.inf, error)


@_rule("compare")
def _compare(node: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    assert isinstance(node.origin, Apply)
    (x, y), (ex, ey) = values, errors
    value = node.origin.op.evaluate(values, attrs)
    apart = np.abs(np.where(x == y, 0.0, np.asarray(x, np.float64) - y))
    return Bounded(value, np.where((ex + ey > 0) & ~(apart > ex + ey), np.inf, 0.0))


@_rule("select")
def _select(_: Tensor, values: Any, errors: Any, __: Any) -> Bounded:
    (choice, x, y), (doubt, ex, ey) = values, errors
    value = np.where(choice, x, y)
    either = np.abs(np.asarray(x, np.float64) - y) + ex + ey
    either = np.where(x == y, np.maximum(ex, ey), np.where(np.isnan(either), np.inf, either))
    # NaN has no error of its own, but may be replaced by a number.
    return Bounded(value, np.where(doubt > 0, np.where(np.isfinite(value), either, np.inf),
                                   np.where(choice, ex, ey)))  # fmt: skip


@_rule("convert")
def _convert(node: Tensor, values: Any, errors: Any, _: Any) -> Bounded:
    (x,), (e,) = values, errors
    source, dtype = node.inputs[0].dtype, node.dtype
    if dtype.is_float:
        value = x.astype(np.float64)
        e = np.where(np.isinf(e), 1.0, e) if source is DType.BOOL else e
        return Bounded(value, e + unit(dtype) * _size(value))
    if not source.is_float:
        value = x.astype(dtype.numpy)
        return Bounded(value, _all_or_nothing(value, errors))
    if dtype is DType.BOOL:
        return Bounded(x != 0, np.where((e > 0) & (np.abs(x) <= e), np.inf, 0.0))
    info = np.iinfo(dtype.numpy)
    inside = (x - e > info.min) & (x + e < info.max)
    value = np.trunc(np.where(inside, x, 0.0)).astype(dtype.numpy)
    swing = np.trunc(x + e) != np.trunc(x - e)
    return Bounded(value, np.where(inside & ~swing, 0.0, np.inf))


@_rule("reduce_sum")
def _sum(node: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    (x,), (e,), axes = values, errors, attrs["axes"]
    value = np.asarray(np.sum(x, axis=axes))
    count = x.size // max(1, value.size)
    size = np.sum(np.abs(np.where(np.isfinite(x), x, 0.0)), axis=axes)
    error = np.sum(e, axis=axes) + count * _F32 * size + unit(node.dtype) * _size(value)
    error = error + _flushed_parts(size, count)
    return _sum_in_range(value, np.asarray(error), size, node)


@_rule("reduce_max")
def _max(_: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    axes = attrs["axes"]
    error = np.max(errors[0], axis=axes, initial=0.0)
    return Bounded(np.asarray(np.max(values[0], axis=axes)), np.asarray(error))


def _flushed_parts(size: Array, count: int) -> Array:
    """What sums in f32 lose where each of `count` terms and partial sums may count as zero.

    size  the sum of the terms' magnitudes
    """
    return np.where(size > 0, np.minimum(size, count * tiny(DType.F32)), 0.0)


def _sum_in_range(value: Array, error: Array, size: Array, node: Tensor) -> Bounded:
    """A part of a sum may overflow where its terms do together."""
    largest = float(ml_dtypes.finfo(node.dtype.numpy).max)  # type: ignore[no-untyped-call]
    error = np.where(np.isnan(error), np.inf, error)
    return Bounded(value, np.where(size > largest / 2, np.inf, error))


@_rule("dot_general", "project", "convolution")
def _product(node: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    assert isinstance(node.origin, Apply)
    op = node.origin.op
    if not node.dtype.is_float:
        value = op.evaluate(values, attrs)
        return Bounded(value, _all_or_nothing(value, [np.max(e) for e in errors]))
    wide_attrs = {**attrs, "dtype": DType.F64} if "dtype" in attrs else attrs
    value = op.evaluate(values, wide_attrs)
    finite = [np.where(np.isfinite(array), np.abs(array), 0.0) for array in values]
    doubt = [np.minimum(array, 1e300) for array in errors]
    size = op.evaluate(tuple(finite), wide_attrs)
    moved = op.evaluate((finite[0] + doubt[0], doubt[1]), wide_attrs)
    moved = moved + op.evaluate((doubt[0], finite[1]), wide_attrs)
    terms = max(array.size for array in values)
    count = min(terms, _terms(node))
    error = moved + (count + 4) * _F32 * size + unit(node.dtype) * _size(value)
    error = error + _flushed_parts(size, 2 * count)
    error = np.where(moved > 1e200, np.inf, error)
    # What is unknown may be infinite, and then counts beside a zero as well.
    unknown = [np.isinf(array).astype(np.float64) for array in errors]
    ones = [np.ones_like(array) for array in unknown]
    touched = op.evaluate((unknown[0], ones[1]), wide_attrs)
    touched = touched + op.evaluate((ones[0], unknown[1]), wide_attrs)
    # So does an infinity beside what is zero but for an error.
    infinite = [(~np.isfinite(array)).astype(np.float64) for array in values]
    touched = touched + op.evaluate((infinite[0], doubt[1]), wide_attrs)
    touched = touched + op.evaluate((doubt[0], infinite[1]), wide_attrs)
    if op.name == "convolution" and attrs["groups"] > 1:
        # In groups, the compiler multiplies what a dilation skips by zero.
        sizes = zip(values[1].shape[2:], attrs["dilation"], strict=True)
        reach = [(size - 1) * apart + 1 for size, apart in sizes]
        every = {**attrs, "dilation": (1,) * len(attrs["dilation"])}
        touched = touched + op.evaluate((infinite[0], np.ones((*ones[1].shape[:2], *reach))), every)
    return _sum_in_range(value, np.where(touched > 0, np.inf, error), size, node)


def _terms(node: Tensor) -> int:
    """How many products are added up for each element."""
    x, y = (source.type for source in node.inputs)
    assert isinstance(node.origin, Apply)
    if node.origin.op.name == "convolution":
        return y.size // y.shape[0]
    if node.origin.op.name == "project":
        return x.shape[1]
    extent = 1
    for axis in node.origin.attrs["contract"][0]:
        extent *= x.shape[axis]
    return extent


@_rule("pad")
def _pad(_: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    op = REGISTRY["pad"]
    inner = {**attrs, "value": 0.0}
    return Bounded(op.evaluate(values, attrs), op.evaluate(errors, inner))


@_rule("gather")
def _gather(_: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    op = REGISTRY["gather"]
    error = op.evaluate((errors[0], values[1]), attrs)
    return Bounded(op.evaluate(values, attrs), np.where(np.any(errors[1] > 0), np.inf, error))


@_rule("scatter")
def _scatter(node: Tensor, values: Any, errors: Any, attrs: Any) -> Bounded:
    op = REGISTRY["scatter"]
    value = op.evaluate(values, attrs)
    error = op.evaluate((errors[0], values[1], errors[2]), attrs)
    if attrs["combine"] == "add" and node.dtype.is_float:
        finite = [np.where(np.isfinite(x), np.abs(x), 0.0) for x in (values[0], values[2])]
        size = op.evaluate((finite[0], values[1], finite[1]), attrs)
        error = error + values[1].size * unit(node.dtype) * size
        return _sum_in_range(value, error, size, node)
    return Bounded(value, np.where(np.any(errors[1] > 0), np.inf, error))


@_rule("scan")
def _scan(node: Tensor, values: Any, errors: Any, _: Any) -> Bounded:
    assert isinstance(node.origin, Apply)
    types = tuple(source.type for source in node.inputs)
    loop = node.origin.op.lower(types, node.type, node.origin.attrs)
    assert isinstance(loop, Loop)
    inputs = [Bounded(value, error) for value, error in zip(values, errors, strict=True)]
    state, sequences = inputs[0], inputs[1 : 1 + loop.sequences]
    states: dict[int, Bounded] = {}
    for step in reversed(range(loop.steps)) if loop.reverse else range(loop.steps):
        rows = [Bounded(sequence.value[step], sequence.error[step]) for sequence in sequences]
        (state,) = _evaluate(loop.body, [state, *rows, *inputs[1 + loop.sequences :]])
        states[step] = state
    if not loop.stacked:
        return state
    every = [states[step] for step in range(loop.steps)]
    return Bounded(np.stack([x.value for x in every]), np.stack([x.error for x in every]))
