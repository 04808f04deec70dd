"""The op that repeats: one body, applied step after step to a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Graph, make_graph
from hearthd.models.dsl.ops.creation import full, full_like
from hearthd.models.dsl.ops.elementwise import add, convert, multiply, tanh
from hearthd.models.dsl.ops.record import Array, Attrs, Loop, Op, Reads, Sample, Types, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.ops.shape import concatenate, reshape, slice_
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor

__all__ = ["scan"]


def _body(types: Types, attrs: Attrs) -> Graph:
    """The graph of one step: the state, a row of each sequence, the constants -> the next state.

    Raises DslError for a body that reads a tensor from outside.
    """
    count = attrs["sequences"]
    rows = (tensor_type.with_shape(*tensor_type.shape[1:]) for tensor_type in types[1 : 1 + count])
    inputs = (types[0], *rows, *types[1 + count :])
    return trace(
        "the body of scan",
        lambda *tensors: (attrs["body"](*tensors),),
        {f"x{i}": tensor_type for i, tensor_type in enumerate(inputs)},
    )


def _infer(types: Types, attrs: Attrs) -> TensorType:
    count, steps, keep = attrs["sequences"], attrs["steps"], attrs["keep"]
    require(len(types) > count >= 0, f"an initial state and {count} sequences")
    require(steps >= 1, "at least one step")
    require(keep in ("all", "last"), "keep to be all or last")
    require(attrs["reverse"] in (False, True), "reverse to be a bool")
    require(
        all(
            tensor_type.rank and tensor_type.shape[0] == steps
            for tensor_type in types[1 : 1 + count]
        ),
        f"sequences of {steps} steps",
    )
    (state,) = (output.type for output in _body(types, attrs).outputs)
    require(state == types[0], f"a body that gives the state's type {types[0]}, not {state}")
    return state.with_shape(steps, *state.shape) if keep == "all" else state


def _evaluate(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    types = tuple(TensorType(array.shape, DType.of(array.dtype)) for array in arrays)
    body, count, steps = _body(types, attrs), attrs["sequences"], attrs["steps"]
    state, sequences, constants = arrays[0], arrays[1 : 1 + count], arrays[1 + count :]
    states = np.empty((steps, *state.shape), state.dtype)
    for step in reversed(range(steps)) if attrs["reverse"] else range(steps):
        rows = [np.asarray(sequence[step]) for sequence in sequences]
        (state,) = evaluate(body, [state, *rows, *constants], {})
        states[step] = state
    return states if attrs["keep"] == "all" else state


def _lower(types: Types, _: TensorType, attrs: Attrs) -> Loop:
    return Loop(
        body=_body(types, attrs),
        steps=attrs["steps"],
        sequences=attrs["sequences"],
        reverse=attrs["reverse"],
        stacked=attrs["keep"] == "all",
    )


# --- the gradient: scans over the steps' states and the gradients that arrive at them


def _vjp(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    """One scan back over the steps for the state; one for each sequence, one for each constant."""
    initial, count, reverse = inputs[0], attrs["sequences"], attrs["reverse"]
    every = {**attrs, "keep": "all"}
    stacked = attrs["keep"] == "all"
    states = _before(initial, output if stacked else scan(*inputs, **every), reverse=reverse)
    zeros = full_like(initial, 0.0)
    # A step's state gets the gradient from outside and the gradient of the step after it.
    outside = (upstream,) if stacked else ()
    end = zeros if stacked else upstream
    back = {**every, "sequences": 1 + len(outside) + count, "reverse": not reverse}
    state_gradients = scan(
        end, states, *outside, *inputs[1:], **{**back, "body": _state_gradient(attrs, stacked)}
    )
    arrived = _before(end, state_gradients, reverse=not reverse)
    if stacked:
        arrived = add(arrived, upstream)
    first = attrs["steps"] - 1 if reverse else 0
    results: list[Tensor | None] = [_row(state_gradients, first)]
    for index, tensor in enumerate(inputs[1:], 1):
        summed = index > count
        shape = tensor.shape if summed else tensor.shape[1:]
        results.append(
            scan(
                full(shape=shape, dtype=tensor.dtype, value=0.0),
                states,
                arrived,
                *inputs[1:],
                body=_input_gradient(attrs["body"], index, summed=summed),
                sequences=2 + count,
                steps=attrs["steps"],
                reverse=reverse,
                keep="last" if summed else "all",
            )
            if tensor.dtype.is_float
            else None
        )
    return tuple(results)


def _state_gradient(attrs: Attrs, stacked: bool) -> Callable[..., Tensor]:
    """(gradient of the state after a step, the state before, ...) -> gradient of the latter."""

    def step(after: Tensor, state: Tensor, *others: Tensor) -> Tensor:
        arrived = add(after, others[0]) if stacked else after
        return _pulled(attrs["body"], arrived, (state, *others[stacked:]), 0)

    return step


def _input_gradient(body: Callable[..., Tensor], index: int, *, summed: bool) -> Callable[..., Any]:
    """(sum so far, state before a step, gradient of the state after, ...) -> an input's."""

    def step(before: Tensor, state: Tensor, arrived: Tensor, *others: Tensor) -> Tensor:
        gradient = _pulled(body, arrived, (state, *others), index)
        return add(before, gradient) if summed else gradient

    return step


def _pulled(
    body: Callable[..., Tensor], arrived: Tensor, inputs: tuple[Tensor, ...], index: int
) -> Tensor:
    """The gradient of one of a body's inputs, for the gradient of its result."""
    from hearthd.models.dsl.gradient import gradients  # it is made of ops: a cycle

    graph = make_graph("the body of scan", inputs, (body(*inputs),), {}, {})
    return gradients(graph, (arrived,), (inputs[index],))[0]


def _before(initial: Tensor, states: Tensor, *, reverse: bool) -> Tensor:
    """The state before each step, of the states after each step: (S, ...) both."""
    steps, first = states.shape[0], reshape(initial, shape=(1, *initial.shape))
    if steps == 1:
        return first
    if reverse:
        return concatenate(_rows(states, 1, steps), first, axis=0)
    return concatenate(first, _rows(states, 0, steps - 1), axis=0)


def _rows(x: Tensor, start: int, stop: int) -> Tensor:
    return slice_(x, bounds=((start, stop, 1), *((0, extent, 1) for extent in x.shape[1:])))


def _row(x: Tensor, index: int) -> Tensor:
    return reshape(_rows(x, index, index + 1), shape=x.shape[1:])


# --- samples


def _recurrence(state: Tensor, x: Tensor) -> Tensor:
    return tanh(add(multiply(state, x), x))


def _two_sequences(state: Tensor, x: Tensor, flags: Tensor, factor: Tensor) -> Tensor:
    gated = multiply(x, convert(flags, dtype=x.dtype))
    return add(multiply(tanh(state), factor), gated)


def _samples(rng: np.random.Generator) -> list[Sample]:
    flags = rng.integers(-2, 3, size=(3, 2, 4), dtype=np.int32)
    return [
        Sample(
            (normal(rng, 2, 3), normal(rng, 4, 2, 3)),
            {"body": _recurrence, "sequences": 1, "steps": 4, "reverse": False, "keep": "all"},
        ),
        Sample(
            (normal(rng, 5), normal(rng, 3, 5)),
            {"body": _recurrence, "sequences": 1, "steps": 3, "reverse": True, "keep": "last"},
        ),
        Sample(
            (normal(rng, 2, 4), normal(rng, 3, 2, 4), flags, normal(rng, 2, 4)),
            {"body": _two_sequences, "sequences": 2, "steps": 3, "reverse": True, "keep": "all"},
        ),
        Sample(
            (normal(rng, 3), normal(rng, 3)),
            {"body": _recurrence, "sequences": 0, "steps": 5, "reverse": False, "keep": "last"},
        ),
    ]


# scan(initial, *sequences, *constants): h = initial, and then step after step
# h = body(h, seq_1[t], ..., const_1, ...). `body` takes and gives void tensors, and reads nothing
# but its arguments. `sequences` says how many inputs are (S, ...), `steps` is S. The result is
# every state, (S, ...) in the order of the sequences' axis also when `reverse`, or the last one.
scan: Op = Op(
    name="scan",
    doc="The states that `body` makes one from the other, reading a row of each sequence a step.",
    infer=_infer,
    evaluate=_evaluate,
    lower=_lower,
    vjp=_vjp,
    samples=_samples,
    reads=Reads.IN_PLACE,
    is_stored=True,
)
