"""Which kernels of a graph run in one dispatch, and where each puts its result.

After a dispatch IREE's workers wait for each other, which takes longer than most kernels of a
token. In a chain they count calls instead (models/dsl/kernels/chain.h).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl.graph import Apply, op_of, readers_of
from hearthd.models.dsl.mlir.chain import Call, Chain, Place
from hearthd.models.dsl.mlir.executables import flat
from hearthd.models.dsl.ops.record import Kernel
from hearthd.models.dsl.ops.shape import concatenate, reshape, slice_
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.models.dsl.graph import Graph, Tensor

# The largest chain: bytes of results, and tensors that it reads. A kernel whose result is larger
# runs so long that waiting does not matter. IREE passes 32 tensors to a dispatch, among them the
# state and the results.
_MAX_BYTES, _MAX_INPUTS = 1 << 21, 30
_ALIGNMENT = 16  # results start at multiples of this, in f32


@dataclass(frozen=True, eq=False)
class Segment:
    """Kernels of a graph in one dispatch.

    chain    their calls
    inputs   the tensors that they read and do not compute, in the order of the chain
    results  their nodes, and where each result is
    """

    chain: Chain
    inputs: tuple[Tensor, ...]
    results: tuple[tuple[Tensor, Place], ...]


Unit: TypeAlias = "Segment | Tensor"


def units(graph: Graph) -> list[Unit]:
    """The nodes of an inlined graph, each after its inputs, some of them in chains.

    Views that only chains read are left out.
    """
    owners: dict[int, Unit] = {
        id(node): segment for segment in _Finder(graph).segments() for node, _ in segment.results
    }
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    found: dict[int, Unit] = {}
    before: dict[int, set[int]] = {}
    needed = list(graph.outputs)
    while needed:
        tensor = needed.pop()
        unit = owners.get(id(tensor), tensor)
        if id(tensor) not in position or id(unit) in found:
            continue
        found[id(unit)] = unit
        read = [one for one in unit.inputs if id(one) in position]
        before[id(unit)] = {id(owners.get(id(one), one)) for one in read}
        needed += read

    def place(key: int) -> int:
        unit = found[key]
        nodes = [node for node, _ in unit.results] if isinstance(unit, Segment) else [unit]
        return min(position[id(node)] for node in nodes)

    return [found[key] for key in _ordered(before, {key: place(key) for key in found})]


def _ordered(before: Mapping[int, set[int]], places: Mapping[int, int]) -> list[int]:
    """Each key after those `before` it, and else by its place."""
    after: dict[int, list[int]] = defaultdict(list)
    for key, others in before.items():
        for other in others:
            after[other].append(key)
    missing = {key: len(others) for key, others in before.items()}
    ready = [(places[key], key) for key, count in missing.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, key = heapq.heappop(ready)
        ordered.append(key)
        for other in after[key]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (places[other], other))
    return ordered


class _Finder:
    """The chains of a graph.

    The stage of a kernel counts the ops of the compiler, one after the other, that it has to wait
    for. The kernels of a stage can run in one dispatch. They are cut into segments where the fewest
    results are passed on, so that all layers have the same chains.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kernels = _kernels(graph)
        self._joined: dict[int, Tensor] = {}  # the concatenation that a result is a part of
        self._stages: dict[int, int] = {}  # of kernels and views of their results
        self._later: dict[int, int] = defaultdict(int)  # stages of what reads other nodes
        for node in graph.nodes:
            self._enter(node)

    def segments(self) -> list[Segment]:
        """The chains, each of at least two kernels or of one that has a scratch."""
        stages: dict[int, list[Tensor]] = defaultdict(list)
        for node in self._graph.nodes:
            if id(node) in self._kernels:
                stages[self._stages[id(node)]].append(node)
        found = [one for nodes in stages.values() for one in self._merged(self._levels(nodes))]
        return [one for segment in found for one in self._used(segment)]

    def _used(self, segment: Segment) -> list[Segment]:
        """A segment if it is worth a dispatch, else its kernels that have a scratch."""
        if len(segment.results) > 1 and _is_small(segment):
            return [segment]
        nodes = [node for node, _ in segment.results]
        return [self._segment([[one]]) for one in nodes if self._kernels[id(one)].scratch]

    def _merged(self, levels: list[list[Tensor]]) -> list[Segment]:
        """Segments of a stage: those that follow each other are one while it is small enough.

        A segment that reads too much is cut into its levels before.
        """
        pieces: list[list[list[Tensor]]] = []
        for cut in self._cut(levels):
            reads_much = len(self._segment(cut).inputs) > _MAX_INPUTS
            pieces += [[level] for level in cut] if reads_much else [cut]
        merged: list[Segment] = []
        before: list[list[Tensor]] = []
        for piece in pieces:
            segment = self._segment([*before, *piece])
            if before and _is_small(segment):
                merged[-1], before = segment, [*before, *piece]
            else:
                merged.append(self._segment(piece))
                before = piece
        return merged

    def _enter(self, node: Tensor) -> None:
        stages = [self._stages.get(id(one), self._later[id(one)]) for one in node.inputs]
        stage = max(stages, default=0)
        if id(node) in self._kernels or (self._is_view(node) and len(set(stages)) == 1):
            self._stages[id(node)] = stage
            if op_of(node) is concatenate:
                self._joined |= {id(self._whole(part)): node for part in node.inputs}
        else:
            inside = [self._stages[id(one)] for one in node.inputs if id(one) in self._stages]
            self._later[id(node)] = max([stage, *(one + 1 for one in inside)])

    def _is_view(self, node: Tensor) -> bool:
        """Whether a node is a part of results as they lie in memory, or results side by side."""
        if not all(id(one) in self._stages for one in node.inputs) or node.dtype is not DType.F32:
            return False
        if op_of(node) is concatenate:
            assert isinstance(node.origin, Apply)
            parts = [self._whole(part) for part in node.inputs]
            return (
                node.origin.attrs["axis"] == 0
                and all(id(part) in self._kernels for part in parts)
                and not any(id(part) in self._joined for part in parts)
                and len(set(map(id, parts))) == len(parts)
            )
        return op_of(node) is reshape or (op_of(node) is slice_ and _start(node) is not None)

    def _whole(self, tensor: Tensor) -> Tensor:
        """The tensor that this one is another shape of."""
        while op_of(tensor) is reshape and id(tensor) in self._stages:
            tensor = tensor.inputs[0]
        return tensor

    def _sources(self, tensor: Tensor) -> list[Tensor]:
        """The results that a tensor is, or is a view of; none if it is another node."""
        if id(tensor) in self._kernels:
            return [tensor]
        if id(tensor) not in self._stages:
            return []
        return [source for one in tensor.inputs for source in self._sources(one)]

    def _levels(self, nodes: Sequence[Tensor]) -> list[list[Tensor]]:
        """The kernels of a stage, each in the first level after all that it reads."""
        at: dict[int, int] = {}
        levels: list[list[Tensor]] = []
        for node in nodes:
            read = [source for one in node.inputs for source in self._sources(one)]
            level = max((at[id(one)] + 1 for one in read if id(one) in at), default=0)
            at[id(node)] = level
            levels += [[]] if level == len(levels) else []
            levels[level].append(node)
        return levels

    def _cut(self, levels: list[list[Tensor]]) -> list[list[list[Tensor]]]:
        """Segments of levels: the fewest tensors are read on both sides of a cut.

        Of tensors that the stage does not compute, those count that only one kernel reads, such as
        the residual stream; not tables that all layers read.
        """
        made: dict[int, int] = defaultdict(lambda: -1)
        read: dict[int, list[int]] = defaultdict(list)
        for level, nodes in enumerate(levels):
            for node in nodes:
                made[id(node)] = level
                for one in node.inputs:
                    for source in self._sources(one) or [one]:
                        if isinstance(source.origin, Apply):
                            read[id(source)].append(level)
        counted = {key: max(at) for key, at in read.items() if key in made or len(at) == 1}
        passed = [
            sum(made[key] <= level < last for key, last in counted.items())
            for level in range(len(levels) - 1)
        ]
        cuts = [i + 1 for i, count in enumerate(passed) if count == min(passed)]
        return [levels[a:b] for a, b in zip([0, *cuts], [*cuts, len(levels)], strict=True)]

    def _segment(self, levels: list[list[Tensor]]) -> Segment:
        """The chain of some levels."""
        nodes = [node for level in levels for node in level]
        places, size = self._new_places(nodes)
        inputs: dict[int, Tensor] = {}

        def place(tensor: Tensor, *, whole: bool = False) -> Place:
            inside = self._place(tensor, places)
            if inside is not None:
                return inside
            viewed, start = (tensor, 0) if whole else _viewed(tensor)
            inputs.setdefault(id(viewed), viewed)
            return Place(list(inputs).index(id(viewed)), start)

        def steps(node: Tensor) -> tuple[Call, ...]:
            """The call of a node's kernel, behind that of its scratch."""
            nonlocal size
            kernel, (first, *others) = self._kernels[id(node)], node.inputs
            read = (place(first, whole=kernel.in_place), *map(place, others))
            if kernel.in_place:
                places[id(node)] = read[0]
            if kernel.scratch is None:
                return (Call(kernel, read, places[id(node)]),)
            scratch = Place(None, size)
            size += _aligned(kernel.scratch.size)
            last = Call(kernel, (*read, scratch), places[id(node)])
            return Call(kernel.scratch.kernel, read, scratch), last

        stepwise = (zip_longest(*map(steps, level)) for level in levels)
        calls = tuple(tuple(call for call in step if call) for level in stepwise for step in level)
        written = {one.result.argument for level in calls for one in level} - {None}
        chain = Chain(
            inputs=tuple(flat(one.type) for one in inputs.values()),
            in_place=tuple(i for i in range(len(inputs)) if i in written),
            levels=calls,
            size=size,
        )
        results = tuple((node, places[id(node)]) for node in nodes)
        return Segment(chain, tuple(inputs.values()), results)

    def _new_places(self, nodes: Sequence[Tensor]) -> tuple[dict[int, Place], int]:
        """Where the results that are not in place are, and how many f32 they take."""
        inside, end = {id(node) for node in nodes}, 0
        places: dict[int, Place] = {}
        for node in nodes:
            if self._kernels[id(node)].in_place or id(node) in places:
                continue
            parts = [self._whole(part) for part in self._parts(node)]
            for part in parts if all(id(one) in inside for one in parts) else [node]:
                places[id(part)] = Place(None, end)
                end += part.type.size
            end = _aligned(end)
        return places, max(end, _ALIGNMENT)  # no tensor is empty

    def _parts(self, node: Tensor) -> tuple[Tensor, ...]:
        """The results beside which a result is, in their order."""
        return self._joined[id(node)].inputs if id(node) in self._joined else (node,)

    def _place(self, tensor: Tensor, places: Mapping[int, Place]) -> Place | None:
        """Where a tensor is that a segment computes, or a view of what it computes."""
        if id(tensor) in places:
            return places[id(tensor)]
        if id(tensor) not in self._stages or id(tensor) in self._kernels:
            return None
        found = [self._place(one, places) for one in tensor.inputs]
        if any(one is None for one in found):
            return None
        first = found[0]
        assert first is not None
        start = _start(tensor) if op_of(tensor) is slice_ else 0
        assert start is not None
        return Place(first.argument, first.offset + start)


def _is_small(segment: Segment) -> bool:
    size = sum(node.type.nbytes for node, place in segment.results if place.argument is None)
    return size <= _MAX_BYTES and len(segment.inputs) <= _MAX_INPUTS


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _kernels(graph: Graph) -> dict[int, Kernel]:
    """The kernels that can be in chains, by the ids of their nodes.

    They write f32, or in place to a tensor that nothing else reads.
    """
    readers, kernels = readers_of(graph), {}
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        types = tuple(source.type for source in node.inputs)
        lowering = node.origin.op.lower(types, node.type, node.origin.attrs)
        if isinstance(lowering, Kernel) and (
            readers[id(node.inputs[0])] == 1 if lowering.in_place else node.dtype is DType.F32
        ):
            kernels[id(node)] = lowering
    return kernels


def _viewed(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor that this one is a view of, and where it starts in its elements."""
    start = 0
    while op_of(tensor) in (reshape, slice_):
        first = _start(tensor) if op_of(tensor) is slice_ else 0
        if first is None:
            break
        start += first
        tensor = tensor.inputs[0]
    return tensor, start


def _start(node: Tensor) -> int | None:
    """The offset of a slice in the elements of its source; None if the slice is not contiguous."""
    assert isinstance(node.origin, Apply)
    bounds, shape = node.origin.attrs["bounds"], node.inputs[0].shape
    partial = [i for i, (a, b, _) in enumerate(bounds) if b - a < shape[i]]
    before = bounds[: max(partial, default=0)]
    if any(step != 1 for *_, step in bounds) or any(b - a != 1 for a, b, _ in before):
        return None
    start: int = sum(a * prod(shape[i + 1 :]) for i, (a, *_) in enumerate(bounds))
    return start
