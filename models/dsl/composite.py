"""Ops that are functions of other ops: composites, and fused ops, which have a C kernel.

A trace keeps such a function as one node, so that rules can find it (models/optimized.py). Value,
shape rule and gradient of the node come from the function: nothing is declared twice.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, cast

import numpy as np
from typing_extensions import override

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import pull_back
from hearthd.models.dsl.graph import Apply, Graph, Tensor, attrs_key, instantiated, rebuilt
from hearthd.models.dsl.ops.record import Array, Attrs, NoGradient, Op, Reads, Types, Vjp, require
from hearthd.models.dsl.threads import in_threads
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import (
    DslError,
    DType,
    NoGradientError,
    TensorType,
    TypeRuleError,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.ops.record import Kernel, Sample

__all__ = ["Composite", "Fused", "body_of", "composite", "inlined"]

P = ParamSpec("P")

# Tensors that a function takes in `*tensors`.
_MAX_VARIABLE = 5
# Bytes of the inputs of a block that are evaluated at a time: what is unpacked of them fits into a
# processor's cache.
_BLOCK_BYTES = 1 << 19


def _no_limits(_: Types, __: Attrs) -> None:
    """Takes all that the function takes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fused(Op):
    """An op with the value, shape rule and gradient of a function.

    reference  (tensors, attributes by keyword) -> the result, in other ops
    kernel     (input types, result type, attrs) -> the C kernel that computes the same; an op
               without one is replaced by its function before a graph is compiled
    limits     (input types, attrs) -> None; raises TypeRuleError for what the kernel cannot take
    blocks     whether the first axis of every input but the first is the result's last one, in
               blocks: NumPy evaluates some blocks at a time, to save memory
    in_numpy   (arrays, attrs) -> its value by NumPy, or the value of some blocks, where the
               function's ops repeat work or are slower; None: by its ops
    no_gradient  why it has no gradient; empty if it has the one of the function
    rows_apart  whether each row of the result depends on that row of the first input, and on none
               of its other rows
    elementwise  whether each element of the result depends on that element of the inputs
    heads_apart  whether each head of the result depends on that head of queries, keys and values,
               its first inputs (N, H, D) and (R, G * D), and on none of their other heads

    Only ops with a kernel are in REGISTRY.
    """

    reference: Callable[..., Tensor]
    kernel: Callable[[Types, TensorType, Attrs], Kernel] | None = None
    limits: Callable[[Types, Attrs], None] = _no_limits
    blocks: bool = False
    in_numpy: Callable[[tuple[Array, ...], Attrs], Array] | None = None
    no_gradient: str = ""
    rows_apart: bool = False
    elementwise: bool = False
    heads_apart: bool = False
    samples: Callable[[np.random.Generator], list[Sample]] = lambda _: []
    reads: Reads = Reads.IN_PLACE
    is_stored: bool = True
    infer: Callable[[Types, Attrs], TensorType] = field(init=False)
    evaluate: Callable[[tuple[Array, ...], Attrs], Array] = field(init=False)
    lower: Callable[[Types, TensorType, Attrs], Kernel] = field(init=False)
    vjp: Vjp | NoGradient = field(init=False)

    @override
    def __post_init__(self) -> None:
        object.__setattr__(self, "_bodies", {})
        object.__setattr__(self, "_inlined_bodies", {})
        derived = {
            "infer": self._infer,
            "evaluate": self._evaluate,
            "lower": self.kernel or self._refuse_lowering,
            "vjp": NoGradient(self.no_gradient) if self.no_gradient else self._vjp,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if self.kernel is not None:
            super().__post_init__()
            object.__setattr__(self, "vjp", self._vjp_or_reason())

    @functools.cached_property
    @override
    def _attributes(self) -> dict[str, bool]:
        """The function's keyword-only arguments, and whether each is required."""
        arguments = inspect.signature(self.reference).parameters.values()
        return {
            argument.name: argument.default is argument.empty
            for argument in arguments
            if argument.kind is argument.KEYWORD_ONLY
        }

    @functools.cached_property
    def _input_counts(self) -> range:
        """How many tensors the function takes."""
        arguments = inspect.signature(self.reference).parameters.values()
        positional = [
            argument for argument in arguments if argument.kind is argument.POSITIONAL_OR_KEYWORD
        ]
        required = sum(argument.default is argument.empty for argument in positional)
        takes_more = any(argument.kind is argument.VAR_POSITIONAL for argument in arguments)
        return range(required, len(positional) + 1 + takes_more * _MAX_VARIABLE)

    def body(self, types: Types, attrs: Attrs) -> Graph:
        """The function's graph for inputs of these types; raises TypeRuleError."""
        bodies: dict[Any, Graph] = vars(self)["_bodies"]
        key = (types, attrs_key(attrs))
        if key not in bodies:
            bodies[key] = trace(
                self.name,
                lambda *tensors: (self.reference(*tensors, **attrs),),
                {f"x{i}": type_ for i, type_ in enumerate(types)},
            )
        return bodies[key]

    def inlined_body(self, types: Types, attrs: Attrs) -> Graph:
        """As `body`, of ops that are lowered by themselves."""
        bodies: dict[Any, Graph] = vars(self)["_inlined_bodies"]
        key = (types, attrs_key(attrs))
        if key not in bodies:
            bodies[key] = inlined(self.body(types, attrs))
        return bodies[key]

    def _infer(self, types: Types, attrs: Attrs) -> TensorType:
        counts = self._input_counts
        expected = f"{counts[0]} input{'' if counts[-1] == 1 else 's'}"
        if len(counts) > 1:
            expected = f"{counts[0]} to {counts[-1]} inputs"
        require(len(types) in counts, f"{expected}, got {len(types)}")
        try:
            self.limits(types, attrs)
        except TypeRuleError as error:
            raise Unsupported(str(error)) from None
        return self.body(types, attrs).outputs[0].type

    def _evaluate(self, arrays: tuple[Array, ...], attrs: Attrs) -> Array:
        if not self.blocks:
            return self._evaluate_block(arrays, attrs)
        unsplit, *split = arrays
        count = len(split[0])
        step = max(1, count * _BLOCK_BYTES // sum(array.nbytes for array in split))

        def evaluated(start: int) -> Array:
            some = (unsplit, *(array[start : start + step] for array in split))
            return self._evaluate_block(some, attrs)

        return np.concatenate(in_threads(evaluated, range(0, count, step)), axis=-1)

    def _evaluate_block(self, arrays: tuple[Array, ...], attrs: Attrs) -> Array:
        if self.in_numpy is not None:
            return self.in_numpy(arrays, attrs)
        types = tuple(TensorType(array.shape, DType.of(array.dtype)) for array in arrays)
        (value,) = evaluate(self.body(types, attrs), arrays, {})
        return value

    def _vjp(
        self, upstream: Tensor, inputs: tuple[Tensor, ...], _: Tensor, attrs: Attrs
    ) -> tuple[Tensor | None, ...]:
        return pull_back(self.reference(*inputs, **attrs), upstream, inputs)

    def _vjp_or_reason(self) -> Vjp | NoGradient:
        """The function's gradient; if it or an op in it has none, the reason."""
        if self.no_gradient:
            return NoGradient(self.no_gradient)
        sample = self.samples(np.random.default_rng(0))[0]
        types = tuple(TensorType(array.shape, DType.of(array.dtype)) for array in sample.inputs)
        body = self.body(types, sample.attrs)
        try:
            pull_back(body.outputs[0], body.outputs[0], body.inputs)
        except NoGradientError as error:
            return NoGradient(str(error))
        return self._vjp

    def _refuse_lowering(self, *_: object) -> Kernel:
        raise DslError(f"{self.name}: a composite is not lowered; replace it with its function")


class Composite(Protocol[P]):
    """A function that a trace keeps as one node, of the op `op`. See `composite`."""

    op: Fused

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Apply the function; raises TypeRuleError as an op does."""


def composite(
    *,
    blocks: bool = False,
    in_numpy: Callable[[tuple[Array, ...], Attrs], Array] | None = None,
    no_gradient: str = "",
) -> Callable[[Callable[P, Tensor]], Composite[P]]:
    """Have a trace keep a function as one node.

    Positional arguments are tensors; the last may be None. Keyword-only arguments are attributes.
    For `blocks`, `in_numpy` and `no_gradient` see `Fused`.
    """

    def decorate(function: Callable[P, Tensor]) -> Composite[P]:
        doc = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
        op = Fused(
            name=function.__name__,
            doc=doc,
            reference=function,
            blocks=blocks,
            in_numpy=in_numpy,
            no_gradient=no_gradient,
        )

        @functools.wraps(function)
        def apply(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            inputs: Any = (tensor for tensor in args if tensor is not None)
            return op(*inputs, **kwargs)

        composite = cast("Composite[P]", apply)
        composite.op = op
        return composite

    return decorate


def inlined(graph: Graph) -> Graph:
    """The graph with every op that has no kernel replaced by its function."""
    if all(body_of(node) is None for node in graph.nodes):
        return graph

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        body = body_of(node)
        return None if body is None else instantiated(body, tuple(map(mapped, node.inputs)))

    return rebuilt(graph, replace)


def body_of(node: Tensor) -> Graph | None:
    """The function of a node without a kernel, as ops to lower; None for another node."""
    origin = node.origin
    if not isinstance(origin, Apply) or not isinstance(origin.op, Fused):
        return None
    if origin.op.kernel is not None:
        return None
    return origin.op.inlined_body(tuple(source.type for source in node.inputs), origin.attrs)
