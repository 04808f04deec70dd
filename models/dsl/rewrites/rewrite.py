"""Rules that replace parts of a traced graph: patterns, and what takes the place of a match.

The rules are in models/optimized.py and models/dsl/rewrites/stored_weights.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of, readers_of, rebuilt
from hearthd.models.dsl.types import DslError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hearthd.models.dsl.ops.record import Op


@dataclass(frozen=True, eq=False)
class Variable:
    """Any tensor. It is given to the replacement under its name."""

    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """An op whose inputs match the patterns `inputs`.

    `attrs` names attributes that are given to the replacement; two of one name must be equal.
    """

    op: Op
    inputs: tuple[Pattern, ...]
    attrs: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Part:
    """Any tensor, or a range of its axis 1: bound to `name`, with (start, stop) as `range_name`.

    With `rows_name` it may be a range of axis 0, too, which is bound to that name. If
    `is_strided`, the range is (start, stop, step).
    """

    slice_: Op
    name: str
    range_name: str
    rows_name: str = ""
    is_strided: bool = False


Pattern: TypeAlias = "Variable | Node | Part"


def variables(names: str) -> Iterator[Variable]:
    """A pattern for each name, that matches any tensor."""
    return map(Variable, names.split())


def node(op: Op, *inputs: Pattern, **attrs: str) -> Node:
    """The pattern of an op; `attrs` says under which name an attribute is given on."""
    return Node(op, inputs, attrs)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern, and what takes its place.

    name         as the bake counts it
    pattern      the nodes that are replaced: the last is computed from all the others, and only
                 these may be read from outside
    replacement  (tensors and attributes by the pattern's names) -> a tensor for each of `pattern`;
                 raises Unsupported for what a kernel does not take: that stays as it is
    """

    name: str
    pattern: tuple[Node, ...]
    replacement: Callable[..., tuple[Tensor, ...]]


@dataclass(eq=False)
class _Match:
    """The tensors that a pattern's names and nodes match."""

    rule: Rule
    bound: dict[str, Any] = field(default_factory=dict)
    nodes: dict[int, Tensor] = field(default_factory=dict)
    new_outputs: tuple[Tensor, ...] | None = None

    def matches(self, pattern: Pattern, tensor: Tensor) -> bool:
        match pattern:
            case Variable(name):
                return self._bind(name, tensor)
            case Part():
                source, rows, columns = _ranges(pattern, tensor)
                return (
                    self._bind(pattern.name, source)
                    and self._bind(pattern.range_name, columns)
                    and (not pattern.rows_name or self._bind(pattern.rows_name, rows))
                )
            case Node():
                return self._matches_node(pattern, tensor)

    def _matches_node(self, pattern: Node, tensor: Tensor) -> bool:
        if id(pattern) in self.nodes:
            return self.nodes[id(pattern)] is tensor
        origin = tensor.origin
        if not (
            isinstance(origin, Apply)
            and origin.op is pattern.op
            and len(origin.inputs) == len(pattern.inputs)
        ):
            return False
        self.nodes[id(pattern)] = tensor
        return all(
            self._bind(name, origin.attrs[key]) for key, name in pattern.attrs.items()
        ) and all(map(self.matches, pattern.inputs, origin.inputs))

    def _bind(self, name: str, value: Any) -> bool:
        known = self.bound.setdefault(name, value)
        return known is value if isinstance(value, Tensor) else bool(known == value)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.nodes[id(pattern)] for pattern in self.rule.pattern)

    def replace(self, mapped: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        """The replacement, with `mapped` applied to the bound tensors."""
        values = {
            name: mapped(value) if isinstance(value, Tensor) else value
            for name, value in self.bound.items()
        }
        return self.rule.replacement(**values)


def _ranges(part: Part, tensor: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """The tensor that this one is a range of, and the ranges of its axes 0 and 1."""
    origin, ends = tensor.origin, 3 if part.is_strided else 2
    if isinstance(origin, Apply) and origin.op is part.slice_ and tensor.type.rank > 1:
        (source,), bounds = origin.inputs, origin.attrs["bounds"]
        expected = [(0, extent, 1) for extent in source.shape]
        expected[1] = (*bounds[1][:ends], 1)[:3]
        if part.rows_name:
            expected[0] = (*bounds[0][:2], 1)
        if list(bounds) == expected:
            return source, bounds[0][:2], bounds[1][:ends]
    rows, columns = (*tensor.shape, 0, 0)[:2]
    return tensor, (0, rows), (0, columns, 1)[:ends]


class Refused(NamedTuple):
    """Matches that a rule did not replace: why, and the last node of each."""

    reason: str
    nodes: list[Tensor]


class Rewrite(NamedTuple):
    """What rules did to a graph.

    graph        after the rules
    counts       how often each rule was applied, by its name
    unsupported  matches that a rule did not replace, by its name
    """

    graph: Graph
    counts: Counter[str]
    unsupported: dict[str, Refused]


def rewritten(
    graph: Graph, rules: Sequence[Rule], parameters: Mapping[str, Tensor] | None = None
) -> Rewrite:
    """Apply rules to a graph.

    A node belongs to one match at most; an earlier rule goes first. `parameters` are all weights
    that replacements may read, by name.
    """
    places = {id(node): i for i, node in enumerate(graph.nodes)}
    readers = readers_of(graph)
    owners: dict[int, _Match] = {}
    counts: Counter[str] = Counter()
    unsupported: dict[str, Refused] = {}
    applied: dict[Op | None, list[Tensor]] = defaultdict(list)
    for tensor in graph.nodes:
        applied[op_of(tensor)].append(tensor)
    for rule in rules:
        for tensor in applied[rule.pattern[-1].op]:
            try:
                match = _find(rule, tensor, owners)
                if match is None or not _is_safe(match, places, readers):
                    continue
                _check(match, tensor)
            except Unsupported as error:
                unsupported.setdefault(rule.name, Refused(str(error), [])).nodes.append(tensor)
            else:
                counts[rule.name] += 1
                owners |= {id(node): match for node in match.nodes.values()}
    if not counts:
        return Rewrite(graph, counts, unsupported)

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        return None if id(node) not in owners else _replaced(owners[id(node)], node, mapped)

    return Rewrite(rebuilt(graph, replace, parameters), counts, unsupported)


def _find(rule: Rule, tensor: Tensor, owners: Mapping[int, _Match]) -> _Match | None:
    """The match that ends with a tensor, if there is one."""
    if id(tensor) in owners:
        return None
    match = _Match(rule)
    if not match.matches(rule.pattern[-1], tensor):
        return None
    if any(id(node) in owners for node in match.nodes.values()):
        return None
    return match


def _check(match: _Match, tensor: Tensor) -> None:
    """Raise Unsupported if a kernel does not take a match, or DslError for a faulty replacement."""
    replacement = match.replace(lambda x: x)
    if [new.type for new in replacement] != [old.type for old in match.outputs]:
        raise DslError(
            f"{match.rule.name}: the replacement of {tensor} has other types: got {replacement}"
        )


def _is_safe(match: _Match, places: Mapping[int, int], readers: Counter[int]) -> bool:
    """Whether nothing else reads what vanishes, and all that the replacement reads comes first."""
    parts = {id(node) for node in match.nodes.values()}
    inside = Counter(id(x) for node in match.nodes.values() for x in node.inputs if id(x) in parts)
    outputs = {id(output) for output in match.outputs}
    first = min(places[output] for output in outputs)
    inputs = [value for value in match.bound.values() if isinstance(value, Tensor)]
    return all(readers[part] == inside[part] for part in parts - outputs) and all(
        places.get(id(value), -1) < first for value in inputs
    )


def _replaced(match: _Match, node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The replacement of a node of a match; None for one that is removed."""
    places = [i for i, output in enumerate(match.outputs) if output is node]
    if not places:
        return None
    if match.new_outputs is None:
        match.new_outputs = match.replace(mapped)
    return match.new_outputs[places[0]]
