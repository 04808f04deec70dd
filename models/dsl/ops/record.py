"""The record of an op: frozen, with every field required, registered by its constructor.

A missing field or a name used twice fails at import. There is no second list of ops anywhere.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hearthd.models.dsl.graph import Apply, Graph, Tensor
from hearthd.models.dsl.types import DslError, DType, TensorType, TypeRuleError

__all__ = [
    "REGISTRY",
    "Kernel",
    "Loop",
    "Lowering",
    "NoGradient",
    "Op",
    "Reads",
    "Sample",
    "Scratch",
    "equal_share",
    "require",
]

Array: TypeAlias = NDArray[Any]
Types: TypeAlias = tuple[TensorType, ...]
Attrs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Lowering:
    """One MLIR op without the types of its inputs and result: the writer prints those.

    operation   the name, e.g. `stablehlo.add`
    attributes  the text between `<{` and `}>`
    region      the text between `({` and `})`
    scalars     operands that follow the inputs (an initial or a padding value), of the result's
                dtype
    into        the value of a last operand of the result's type, which the op accumulates into
    hints       the text between `{` and `}` behind: attributes of the compiler's, not of the op
    in_f32      whether the inputs are converted to f32, and the result is rounded once
    """

    operation: str
    attributes: str = ""
    region: str = ""
    scalars: tuple[float, ...] = ()
    into: float | None = None
    hints: str = ""
    in_f32: bool = False


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop around a graph, whose size does not depend on the number of steps.

    body       (state, a row of each sequence, constants) -> the next state
    steps      how often, the extent of the sequences' first axis
    sequences  how many inputs, behind the initial state, are sequences; constants follow
    reverse    whether the last row is the first that is read
    stacked    whether the result is every state, row by row, and not the last one
    """

    body: Graph
    steps: int
    sequences: int
    reverse: bool
    stacked: bool


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A C function of models/dsl/kernels, called by every workgroup of one dispatch.

    Its arguments are a pointer and an offset in elements for each input and the result, the number
    of the workgroup, `sizes` and `scalars`. Every workgroup writes its own part of the result.

    function    the name of its file, or of a variant of it (models/dsl/activations.py); in C it has
                `hearth_` in front
    sizes       integer arguments
    workgroups  the number of calls
    scalars     f32 arguments
    in_place    whether the result begins as the first input, which is then not an argument
    private     for each input, the number n of elements that only one workgroup reads: workgroup w
                reads those from n * w on. 0 if workgroups share the input; () if they share all
    joins       whether the workgroups n * w to n * w + n - 1 are workgroup w with n times the first
                of `sizes`
    scratch     what another kernel computes first: an argument behind the inputs. Such a kernel is
                always in a chain (models/dsl/mlir/chains)
    """

    function: str
    sizes: tuple[int, ...]
    workgroups: int
    scalars: tuple[float, ...] = ()
    in_place: bool = False
    private: tuple[int, ...] = ()
    joins: bool = False
    scratch: Scratch | None = None


def equal_share(count: int, *, workgroups: int, largest: int) -> int:
    """How many of `count` blocks each workgroup has; the last workgroup has what is left.

    The share is at most `largest`. Otherwise it is the smallest with which `workgroups`, or one for
    each block if there are fewer blocks, have all blocks. So the share of the last workgroup is
    about as large: threads take several workgroups at a time, and wait for the largest share.
    """
    shares = max(-(-count // largest), min(count, workgroups))
    return -(-count // shares)


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """An array of `size` f32 that one kernel computes for another, from the same inputs."""

    kernel: Kernel
    size: int


@dataclass(frozen=True)
class NoGradient:
    """The reason that an op has no gradient, in place of a vjp."""

    reason: str


@dataclass(frozen=True)
class Sample:
    """A small example of an op's inputs and attributes; every check of the op runs on it."""

    inputs: tuple[Array, ...]
    attrs: Attrs = field(default_factory=dict)


# vjp(upstream, inputs, output, attrs) -> one gradient for each input; None for an integer input,
# and for one that the upstream gradient does not reach.
Vjp: TypeAlias = Callable[[Tensor, tuple[Tensor, ...], Tensor, Attrs], tuple["Tensor | None", ...]]


def zero_gradient(
    _: Tensor, inputs: tuple[Tensor, ...], __: Tensor, ___: Attrs
) -> tuple[Tensor | None, ...]:
    """The vjp of an op through which no gradient flows, whatever its derivative."""
    return (None,) * len(inputs)


class Reads(enum.Enum):
    """How a compiled op reads a weight.

    IN_PLACE    all of it, from the mapped file
    LAID_OUT    all of it, from a copy in the layout of its kernel, which is made at load
    LOOKED_UP   a few rows of it, from the mapped file: the system may drop the other pages
    """

    IN_PLACE = enum.auto()
    LAID_OUT = enum.auto()
    LOOKED_UP = enum.auto()


@dataclass(frozen=True, kw_only=True, eq=False)
class Op:
    """One operation.

    name      unique
    doc       one sentence: what the op computes
    infer     (input types, attrs) -> result type; raises TypeRuleError; the only shape rule
    evaluate  (arrays, attrs) -> array, in NumPy
    lower     (input types, result type, attrs) -> Lowering, Loop or Kernel
    vjp       the gradient in terms of ops, or NoGradient with the reason
    samples   (generator) -> 1 to 4 small examples, distinct sizes, rank up to 4; they also say
              which attributes there are, and those that all of them have are required
    reads     how the compiled op reads a weight
    is_stored whether the compiled op stores its result; the compiler computes another op's result
              where it is read
    """

    name: str
    doc: str
    infer: Callable[[Types, Attrs], TensorType]
    evaluate: Callable[[tuple[Array, ...], Attrs], Array]
    lower: Callable[[Types, TensorType, Attrs], Lowering | Loop | Kernel]
    vjp: Vjp | NoGradient
    samples: Callable[[np.random.Generator], list[Sample]]
    reads: Reads
    is_stored: bool

    def __post_init__(self) -> None:
        if self.name in REGISTRY:
            raise DslError(f"there are two ops called {self.name!r}")
        REGISTRY[self.name] = self

    def __call__(self, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Apply the op to symbolic tensors; raises TypeRuleError, naming the op and its inputs."""
        for i, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise TypeRuleError(f"{self.name}: expected a tensor as input {i}, got {tensor!r}")
        for name in attrs.keys() - self._attributes.keys():
            raise TypeRuleError(f"{self.name}: there is no attribute {name!r}")
        for name, required in self._attributes.items():
            if required and name not in attrs:
                raise TypeRuleError(f"{self.name}: the attribute {name!r} is missing")
        types = tuple(tensor.type for tensor in inputs)
        try:
            result = self.infer(types, attrs)
        except TypeRuleError as error:
            raise type(error)(f"{self.name}({_call_text(types, attrs)}): {error}") from None
        return Tensor(result, Apply(self, inputs, attrs))

    @cached_property
    def _attributes(self) -> Mapping[str, bool]:
        """The names of the attributes, and whether each is required."""
        samples = self.samples(np.random.default_rng(0))
        names = dict.fromkeys(name for sample in samples for name in sample.attrs)
        return {name: all(name in sample.attrs for sample in samples) for name in names}


REGISTRY: dict[str, Op] = {}


def require(condition: bool, expected: str, function: str = "") -> None:
    """Raise TypeRuleError with what is expected, unless the condition holds.

    An op's name and input types are added when it is applied; another function states its name.
    """
    if not condition:
        raise TypeRuleError(
            f"{function}: expected {expected}" if function else f"expected {expected}"
        )


def operands(types: Types, count: int) -> Types:
    """The types; raises TypeRuleError unless there are `count`."""
    require(len(types) == count, f"{count} input{'' if count == 1 else 's'}, got {len(types)}")
    return types


def _call_text(types: Types, attrs: Attrs) -> str:
    values = (f"{key}={' '.join(repr(value).split()):.60}" for key, value in attrs.items())
    return ", ".join([*map(str, types), *values])


def integers(values: tuple[int, ...]) -> str:
    """MLIR's text of a dense array of i64."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def combiner(operation: str, dtype: DType) -> str:
    """The region of a reduction or scatter, which makes one element of two by a scalar op."""
    scalar_type = TensorType((), dtype).mlir
    return (
        f"^bb0(%a: {scalar_type}, %b: {scalar_type}): "
        f'%c = "{operation}"(%a, %b) : ({scalar_type}, {scalar_type}) -> {scalar_type} '
        f'"stablehlo.return"(%c) : ({scalar_type}) -> ()'
    )
