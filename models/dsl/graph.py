"""Tensors without data, and the graphs that they form.

A Tensor remembers where it came from: an input, a parameter, or an op applied to other tensors.
That is the whole graph; `Graph` only adds which tensors go in and come out, and an order.
"""

from __future__ import annotations

import numbers
import operator
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from hearthd.models.dsl.types import DslError, DType, TensorType, TypeRuleError, VoidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hearthd.models.dsl.ops.record import Op


@dataclass(frozen=True)
class Input:
    """The origin of a tensor that the caller passes in."""

    name: str


@dataclass(frozen=True)
class Parameter:
    """The origin of a tensor that comes out of the weights. Its module's path is its name."""


@dataclass(frozen=True)
class Apply:
    """The origin of a tensor that an op computes."""

    op: Op
    inputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any]


# What Python's operators apply to tensors, by how they are written, and "fill": (tensor, number)
# -> a tensor of the same type filled with the number. The files of models/dsl/ops register theirs.
OPERATORS: dict[str, Callable[..., Tensor]] = {}


def _operator(
    symbol: str, *, reflected: bool = False
) -> Callable[[Tensor, Tensor | float], Tensor]:
    """A Python operator on tensors of one type; a number stands for a tensor filled with it."""

    def method(self: Tensor, other: Tensor | float) -> Tensor:
        operand = other if isinstance(other, Tensor) else filled(self, other)
        pair = (operand, self) if reflected else (self, operand)
        return OPERATORS[f"x {symbol} y"](*pair)

    def filled(like: Tensor, value: object) -> Tensor:
        pair = (f"{value!r:.60}", str(like.type))
        left, right = pair if reflected else reversed(pair)
        if not isinstance(value, numbers.Real):
            raise TypeRuleError(f"{left} {symbol} {right}: expected a tensor or a number")
        try:
            return OPERATORS["fill"](like, value)
        except TypeRuleError:
            raise TypeRuleError(
                f"{left} {symbol} {right}: {value!r} is not a value of {like.dtype}; convert first"
            ) from None

    return method


@dataclass(frozen=True, eq=False)
class Tensor:
    """A symbolic (void) value: a type and an origin, no data.

    `==` compares identity, as tensors are keys of mappings: `f.eq` compares elements.
    """

    type: TensorType
    origin: Input | Parameter | Apply

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's extents."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The tensor's DType."""
        return self.type.dtype

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that this one is computed from."""
        return self.origin.inputs if isinstance(self.origin, Apply) else ()

    __add__ = _operator("+")
    __radd__ = _operator("+", reflected=True)
    __sub__ = _operator("-")
    __rsub__ = _operator("-", reflected=True)
    __mul__ = _operator("*")
    __rmul__ = _operator("*", reflected=True)
    __truediv__ = _operator("/")
    __rtruediv__ = _operator("/", reflected=True)
    __pow__ = _operator("**")
    __rpow__ = _operator("**", reflected=True)

    __lt__ = _operator("<")
    __le__ = _operator("<=")
    __gt__ = _operator(">")
    __ge__ = _operator(">=")

    def __matmul__(self, other: Tensor) -> Tensor:
        return OPERATORS["x @ y"](self, other)

    def __neg__(self) -> Tensor:
        return OPERATORS["-x"](self)

    def __getitem__(self, key: Any) -> Tensor:
        return OPERATORS["x[...]"](self, key)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise VoidError(
            f"{self} is void: while tracing there are shapes and dtypes, no data "
            "(no bool(), float(), len(), iteration or NumPy on it)"
        )

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _refuse

    @override
    def __repr__(self) -> str:
        match self.origin:
            case Input(name):
                origin = f"input {name}"
            case Parameter():
                origin = "parameter"
            case Apply(op):
                origin = op.name
        return f"<{origin}: {self.type}>"


@dataclass(frozen=True)
class Graph:
    """A traced function.

    inputs      in the order of the function's arguments
    outputs     in the order of its results
    parameters  the weights that it reads, by name
    in_place    output index -> index of the input whose storage the output takes
    nodes       the applied ops, each after its inputs
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Tensor]
    in_place: Mapping[int, int]
    nodes: tuple[Tensor, ...]


def make_graph(
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    parameters: Mapping[str, Tensor],
    in_place: Mapping[int, int],
) -> Graph:
    """Order the nodes that the outputs need; keep the parameters that they read.

    A parameter may be among the inputs: the caller then passes it in, as in training.

    Raises DslError for an input of another trace, a parameter without a name, and an in-place
    pair of different types.
    """
    names = {id(tensor): key for key, tensor in parameters.items()}
    known = {id(tensor) for tensor in inputs}
    nodes: list[Tensor] = []
    used: set[str] = set()
    for tensor in in_order(outputs):
        match tensor.origin:
            case Apply():
                nodes.append(tensor)
            case Parameter() if id(tensor) not in known:
                if id(tensor) not in names:
                    raise DslError(f"{name}: {tensor} belongs to no module of this program")
                used.add(names[id(tensor)])
            case Input(input_name):
                if id(tensor) not in known:
                    raise DslError(f"{name}: input {input_name} belongs to another trace")
    for result, argument in in_place.items():
        if outputs[result].type != inputs[argument].type:
            raise DslError(
                f"{name}: output {result} ({outputs[result].type}) cannot take the storage of "
                f"input {argument} ({inputs[argument].type})"
            )
    kept = {key: tensor for key, tensor in parameters.items() if key in used}
    return Graph(name, inputs, outputs, kept, dict(in_place), tuple(nodes))


def in_order(roots: tuple[Tensor, ...], leaves: tuple[Tensor, ...] = ()) -> Iterator[Tensor]:
    """Every tensor that the roots are computed from, inputs first, each once (no recursion).

    The walk does not go beyond `leaves`, which are left out.
    """
    done = {id(leaf) for leaf in leaves}
    opened: set[int] = set()
    stack = [*reversed(roots)]
    while stack:
        tensor = stack.pop()
        key = id(tensor)
        if key in done:
            continue
        origin = tensor.origin
        if key not in opened and isinstance(origin, Apply):
            opened.add(key)
            stack.append(tensor)  # again, below its inputs
            stack += origin.inputs[::-1]
        else:
            done.add(key)
            yield tensor


def op_of(tensor: Tensor) -> Op | None:
    """The op that computes a tensor; None for an input and a parameter."""
    return tensor.origin.op if isinstance(tensor.origin, Apply) else None


def readers_of(graph: Graph) -> Counter[int]:
    """How often each tensor is read, also as a result, by its id."""
    readers = Counter(id(source) for node in graph.nodes for source in node.inputs)
    readers.update(map(id, graph.outputs))
    return readers


def rebuilt(
    graph: Graph,
    replace: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor | None],
    parameters: Mapping[str, Tensor] | None = None,
) -> Graph:
    """The graph with some nodes replaced.

    replace     (node, the function from a tensor before it to the one in the new graph) -> what
                takes the node's place, or None to keep the node's op
    parameters  every weight that the new graph may read, by name; the old graph's by default
    """
    new: dict[int, Tensor] = {}

    def mapped(tensor: Tensor) -> Tensor:
        return new.get(id(tensor), tensor)

    for node in graph.nodes:
        replacement = replace(node, mapped)
        if replacement is None:
            replacement = reapplied(node, mapped)
        if replacement is not node:
            new[id(node)] = replacement
    if not new and parameters is None:
        return graph
    named = graph.parameters if parameters is None else parameters
    outputs = tuple(map(mapped, graph.outputs))
    return make_graph(graph.name, graph.inputs, outputs, named, graph.in_place)


def reapplied(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor:
    """A node's op on the tensors in the places of its inputs."""
    origin = node.origin
    assert isinstance(origin, Apply)
    inputs = tuple(map(mapped, origin.inputs))
    if all(map(operator.is_, inputs, origin.inputs)):
        return node
    return Tensor(node.type, Apply(origin.op, inputs, origin.attrs))


def instantiated(graph: Graph, inputs: tuple[Tensor, ...]) -> Tensor:
    """The output of a graph without parameters, with other tensors as its inputs."""
    new = {id(old): tensor for old, tensor in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        new[id(node)] = reapplied(node, lambda tensor: new[id(tensor)])
    (output,) = graph.outputs
    return new[id(output)]


def deduplicated(graph: Graph) -> Graph:
    """The graph with one node where several apply the same op to the same inputs."""
    first: dict[Any, Tensor] = {}

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor:
        copy = reapplied(node, mapped)
        assert isinstance(copy.origin, Apply)
        attrs = attrs_key(copy.origin.attrs)
        return first.setdefault((id(copy.origin.op), tuple(map(id, copy.inputs)), attrs), copy)

    return rebuilt(graph, replace)


def attrs_key(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Attributes as a key of a mapping: arrays by their contents, functions by identity."""
    return tuple((name, _key(attrs[name])) for name in sorted(attrs))


def _key(value: Any) -> Any:
    if hasattr(value, "tobytes"):
        return value.shape, str(value.dtype), value.tobytes()
    return type(value), value  # 1, 1.0 and True are equal and would share a key
