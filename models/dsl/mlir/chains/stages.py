"""Find the kernels of a graph that can share a dispatch, and the views of their results."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, op_of, readers_of
from hearthd.models.dsl.ops.record import Kernel
from hearthd.models.dsl.ops.shape import concatenate, reshape, slice_
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections import Counter

    from hearthd.models.dsl.graph import Graph, Tensor


class Stages:
    """The stages of a graph.

    kernels  those that chains can call, by the ids of their nodes
    """

    def __init__(self, graph: Graph) -> None:
        self.kernels = _kernels(graph)
        self._nodes = [node for node in graph.nodes if id(node) in self.kernels]
        self._stages: dict[int, int] = {}  # of kernels and views
        self._next_stages: dict[int, int] = {}  # of compiled ops: the earliest that can read them
        self._concatenations: dict[int, Tensor] = {}  # the view that has a result as an operand
        for node in graph.nodes:
            self._enter(node)
        self._delay(graph)

    def nodes(self) -> list[list[Tensor]]:
        """The kernels of each stage, in the order of the graph."""
        stages: dict[int, list[Tensor]] = defaultdict(list)
        for node in self._nodes:
            stages[self._stages[id(node)]].append(node)
        return list(stages.values())

    def is_view(self, tensor: Tensor) -> bool:
        """Whether a tensor is a view of results."""
        return id(tensor) in self._stages and id(tensor) not in self.kernels

    def sources(self, tensor: Tensor) -> list[Tensor]:
        """The results that a tensor is, or is a view of; none if it is another tensor."""
        if id(tensor) in self.kernels:
            return [tensor]
        if not self.is_view(tensor):
            return []
        return [source for operand in tensor.inputs for source in self.sources(operand)]

    def adjacent(self, result: Tensor) -> list[Tensor]:
        """The results that a view has side by side, in their order; else the result alone."""
        view = self._concatenations.get(id(result))
        return [result] if view is None else [self._reshaped(x) for x in view.inputs]

    def _enter(self, node: Tensor) -> None:
        stages = [
            self._stages.get(id(source), self._next_stages.get(id(source), 0))
            for source in node.inputs
        ]
        stage = max(stages, default=0)
        if id(node) in self.kernels or (self._can_be_view(node) and len(set(stages)) == 1):
            self._stages[id(node)] = stage
            if op_of(node) is concatenate:
                results = map(self._reshaped, node.inputs)
                self._concatenations |= {id(result): node for result in results}
        else:
            read = [self._stages[id(x)] + 1 for x in node.inputs if id(x) in self._stages]
            self._next_stages[id(node)] = max([stage, *read])

    def _delay(self, graph: Graph) -> None:
        """Put a kernel that reads no result into the stage of the first kernel that reads it."""
        readers: dict[int, list[Tensor]] = defaultdict(list)
        for node in graph.nodes:
            for source in node.inputs:
                readers[id(source)].append(node)
        for node in self._nodes:
            reads_results = any(id(source) in self._stages for source in node.inputs)
            if not reads_results and all(id(x) in self.kernels for x in readers[id(node)]):
                stages = (self._stages[id(reader)] for reader in readers[id(node)])
                self._stages[id(node)] = min(stages, default=self._stages[id(node)])

    def _can_be_view(self, node: Tensor) -> bool:
        """Whether a node is a view, if its operands are in one stage.

        A result has at most one other beside it, so that one address suits all of its views.
        """
        if node.dtype is not DType.F32 or not all(id(x) in self._stages for x in node.inputs):
            return False
        if op_of(node) is concatenate:
            assert isinstance(node.origin, Apply)
            results = [self._reshaped(operand) for operand in node.inputs]
            return (
                node.origin.attrs["axis"] == 0
                and all(id(result) in self.kernels for result in results)
                and not any(id(result) in self._concatenations for result in results)
                and len(set(map(id, results))) == len(results)
            )
        return op_of(node) is reshape or (op_of(node) is slice_ and slice_start(node) is not None)

    def _reshaped(self, tensor: Tensor) -> Tensor:
        """The tensor that this one reshapes, or itself."""
        while op_of(tensor) is reshape and id(tensor) in self._stages:
            tensor = tensor.inputs[0]
        return tensor


def slice_start(node: Tensor) -> int | None:
    """The offset of a slice in the elements of its operand; None if it is not contiguous."""
    assert isinstance(node.origin, Apply)
    bounds, shape = node.origin.attrs["bounds"], node.inputs[0].shape
    partial = [i for i, (start, end, _) in enumerate(bounds) if end - start < shape[i]]
    outer = bounds[: max(partial, default=0)]
    if any(stride != 1 for *_, stride in bounds) or any(
        end - start != 1 for start, end, _ in outer
    ):
        return None
    offset: int = sum(start * prod(shape[i + 1 :]) for i, (start, *_) in enumerate(bounds))
    return offset


def _kernels(graph: Graph) -> dict[int, Kernel]:
    """The kernels that can be in chains, by the ids of their nodes.

    They write f32, or in place to a tensor that only they and their inputs read.
    """
    readers, kernels = readers_of(graph), {}
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        types = tuple(source.type for source in node.inputs)
        lowering = node.origin.op.lower(types, node.type, node.origin.attrs)
        if isinstance(lowering, Kernel) and (
            _is_read_before(node, readers) if lowering.in_place else node.dtype is DType.F32
        ):
            kernels[id(node)] = lowering
    return kernels


def _is_read_before(node: Tensor, readers: Counter[int]) -> bool:
    """Whether only the node and its other inputs read its first input."""
    target, *others = node.inputs
    distinct = {id(source): source for source in others}.values()
    reads = sum(x is target for source in distinct for x in source.inputs)
    return readers[id(target)] == 1 + reads
