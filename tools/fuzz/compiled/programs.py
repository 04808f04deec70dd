"""Random programs of the DSL: a few ops and functions over small tensors of every dtype.

A program is a list of steps, which JSON can hold: a name, the steps that it reads, by their place
in the list, and attributes. What no step reads is a result.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.dsl.value_and_grad import value_and_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

JsonAttrs: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """An input, an op or a function of models/dsl/functions, applied to earlier steps."""

    name: str
    reads: tuple[int, ...] = ()
    attrs: JsonAttrs = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Steps, each after those that it reads.

    seed  of the factors in its loss
    form  what is compiled of it, a name of FORMS; "": the value, and the loss with its gradients
    """

    steps: tuple[Step, ...]
    seed: int = 0
    form: str = ""

    def to_json(self) -> list[Any]:
        """As the corpus keeps it."""
        return [[step.name, list(step.reads), step.attrs] for step in self.steps]

    @staticmethod
    def from_json(data: list[Any]) -> Program:
        """The reverse of `to_json`."""
        return Program(tuple(Step(name, tuple(reads), attrs) for name, reads, attrs in data))


@dataclass(frozen=True)
class Case:
    """A function to compile, and arrays to call it on."""

    graph: Graph
    arrays: tuple[Array, ...]


def value_case(program: Program, name: str) -> Case:
    """The program's results, as a function of its inputs. Raises DslError."""
    tensors, inputs = _tensors(program)
    outputs = tuple(tensors[i] for i in results_of(program))
    arrays = tuple(_input_array(step) for step in program.steps if step.name == "input")
    return Case(make_graph(name, inputs, outputs, {}, {}), arrays)


def gradient_case(program: Program, name: str) -> Case | None:
    """Gradients as `loss_case`, without the loss."""
    case = loss_case(program, name)
    if case is None:
        return None
    graph = case.graph
    return Case(make_graph(name, graph.inputs, graph.outputs[1:], {}, {}), case.arrays)


def loss_case(program: Program, name: str) -> Case | None:
    """The sum of its float results times random numbers, and its gradients at some float inputs.

    None without float inputs or results. Raises DslError, also where an op has no gradient.
    """
    tensors, inputs = _tensors(program)
    outputs = tuple(tensors[i] for i in results_of(program) if tensors[i].dtype.is_float)
    by = _differentiated(program, inputs)
    if not outputs or not by:
        return None
    arrays = [_input_array(step) for step in program.steps if step.name == "input"]
    rng = np.random.default_rng(program.seed)
    factors = tuple(
        Tensor(output.type.with_dtype(DType.F32), Input(f"g{i}"))
        for i, output in enumerate(outputs)
    )
    arrays += [rng.normal(size=factor.shape).astype(np.float32) for factor in factors]

    def loss() -> Tensor:
        products = [
            ops.convert(output, dtype=DType.F32) * factor
            for output, factor in zip(outputs, factors, strict=True)
        ]
        sums = [
            ops.reduce_sum(product, axes=tuple(range(product.type.rank))) for product in products
        ]
        return functools.reduce(ops.add, sums)

    value, results = value_and_grad(loss, by=by)
    return Case(make_graph(name, (*inputs, *factors), (value, *results), {}, {}), tuple(arrays))


FORMS: dict[str, Callable[[Program, str], Case | None]] = {
    "value": value_case,
    "gradient": gradient_case,
    "loss": loss_case,
}


def _differentiated(program: Program, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Some of the float inputs, by their seeds: the same ones of a smaller program; or all."""
    seeds = [step.attrs["seed"] for step in program.steps if step.name == "input"]
    pairs = [pair for pair in zip(inputs, seeds, strict=True) if pair[0].dtype.is_float]
    some = tuple(tensor for tensor, seed in pairs if seed % 5 > 1)
    return some or tuple(tensor for tensor, _ in pairs)


def results_of(program: Program) -> list[int]:
    """The places of the steps that no step reads."""
    sources = {i for step in program.steps for i in step.reads}
    return [i for i in range(len(program.steps)) if i not in sources]


def _tensors(program: Program) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Every step's tensor, and those that are inputs."""
    tensors: list[Tensor] = []
    inputs = []
    for i, step in enumerate(program.steps):
        if step.name == "input":
            shape, dtype = tuple(step.attrs["shape"]), DType.named(step.attrs["dtype"])
            tensors.append(Tensor(TensorType(shape, dtype), Input(f"x{i}")))
            inputs.append(tensors[-1])
        else:
            attrs = {key: attribute_value(key, value) for key, value in step.attrs.items()}
            tensors.append(apply(step.name, [tensors[i] for i in step.reads], attrs))
    return tensors, tuple(inputs)


def attribute_value(key: str, value: Any) -> Any:
    """An attribute as ops take it: dtypes for labels, tuples for lists."""
    if key == "dtype":
        return DType.named(value)
    return tuple(attribute_value("", item) for item in value) if isinstance(value, list) else value


def apply(name: str, tensors: Sequence[Tensor], attrs: JsonAttrs) -> Tensor:
    """One step; raises DslError."""
    if name in FUNCTIONS:
        return FUNCTIONS[name](*tensors, **attrs)
    return ops.REGISTRY[name](*tensors, **attrs)


def _scan(h: Tensor, x: Tensor, w: Tensor, *, reverse: bool, keep: str) -> Tensor:
    """A loop: h = tanh(h + x w), over the rows of x."""

    def body(state: Tensor, row: Tensor, weight: Tensor) -> Tensor:
        return ops.tanh(state + row * weight)

    return ops.scan(h, x, w, body=body, sequences=1, steps=x.shape[0], reverse=reverse, keep=keep)


def _masked_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return f.scaled_dot_product_attention(q, k, v, seen=seen)


def _added_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return f.scaled_dot_product_attention(q, k, v, mask=mask)


def _with_number(x: Tensor, *, operator: str, value: float) -> Tensor:
    match operator:
        case "+":
            return x + value
        case "*":
            return x * value
        case "-":
            return value - x
        case "/":
            return value / x
    return x**value


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "with_number": _with_number,
    "softmax": f.softmax,
    "log_softmax": f.log_softmax,
    "relu": f.relu,
    "leaky_relu": f.leaky_relu,
    "elu": f.elu,
    "gelu": f.gelu,
    "gelu_tanh": f.gelu_tanh,
    "silu": f.silu,
    "sigmoid": f.sigmoid,
    "log2": f.log2,
    "mean": lambda x, *, axes: f.mean(x, *axes),
    "variance": lambda x, *, axes: f.variance(x, *axes, correction=0),
    "argmax": f.argmax,
    "rms_norm": f.rms_norm,
    "layer_norm": f.layer_norm,
    "group_norm": f.group_norm,
    "batch_norm": f.batch_norm,
    "matmul": f.matmul,
    "linear": f.linear,
    "stack": lambda *xs, axis: f.stack(xs, axis=axis),
    "unfold": f.unfold,
    "tril": f.tril,
    "attention": f.scaled_dot_product_attention,
    "attention_seen": _masked_attention,
    "attention_mask": _added_attention,
    "causal_attention": lambda q, k, v: f.scaled_dot_product_attention(
        q, k, v, seen=f.causal(q.shape[1], k.shape[1])
    ),
    "rope": f.rope,
    "rope_table": lambda p, *, width, part: f.rope_table(p, width, base=10_000.0)[part],
    "padded_convolution": lambda x, w, **attrs: f.convolution(x, w, **attrs),
    "max_pool2d": lambda x, *, size, stride: f.max_pool2d(x, size, stride=stride),
    "avg_pool2d": lambda x, *, size, stride: f.avg_pool2d(x, size, stride=stride),
    "upsample2d_bilinear": f.upsample2d_bilinear,
    "upsample2d_nearest": f.upsample2d_nearest,
    "cross_entropy": f.cross_entropy,
    "mean_squared_error": f.mean_squared_error,
    "gru_cell": f.gru_cell,
    "scan_tanh": _scan,
}


# --- arrays


def _input_array(step: Step) -> Array:
    """The values of an input: by its `fill`."""
    attrs = step.attrs
    dtype = DType.named(attrs["dtype"])
    rng = np.random.default_rng(attrs["seed"])
    values = _fill(rng, attrs["fill"], tuple(attrs["shape"]), dtype, attrs.get("limit", 0))
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy)


def _fill(
    rng: np.random.Generator, fill: str, shape: tuple[int, ...], dtype: DType, limit: int
) -> Any:
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.6
    match fill:
        case "indices":
            return rng.integers(0, limit, size=shape)
        case "distinct":
            return rng.permutation(max(limit, math.prod(shape)))[: math.prod(shape)].reshape(shape)
        case "positive":
            return rng.uniform(0.5, 2.0, size=shape)
        case "wide":
            return rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3, size=shape)
        case "ties":
            return rng.integers(-2, 3, size=shape)
        case "special":
            return _special(rng, shape, dtype)
    if not dtype.is_float:
        return rng.integers(-9, 10, size=shape)
    return rng.normal(size=shape)


def _special(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Any:
    """Numbers among which some are infinite, NaN, subnormal, or at an end of the range."""
    if not dtype.is_float:
        ends = np.iinfo(dtype.numpy)
        return rng.choice(np.array([0, 1, -1, ends.min, ends.max, 7]), size=shape)
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    tiny, largest = float(info.tiny), float(info.max)
    choices = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        math.inf,
        -math.inf,
        math.nan,
        tiny,
        -tiny / 4,
        largest,
        -300.0,
    ]
    values = rng.normal(size=shape)
    where = rng.random(shape) < 0.3
    return np.where(where, rng.choice(choices, size=shape), values)
