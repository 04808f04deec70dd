"""Divide long ops into blocks of rows, with the ops between two of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of
from hearthd.models.dsl.ops import elementwise

if TYPE_CHECKING:
    from collections.abc import Callable

    Mapped = Callable[[Tensor], Tensor]

# Kernels divide rows into blocks of this many. Fewer than two blocks are read by other kernels.
_ROWS = 32
# All rows of the result are equal.
_FILLED = (ops.broadcast, ops.full)
_ELEMENTWISE = frozenset(op for op in vars(elementwise).values() if isinstance(op, ops.Op))


def readers_of(graph: Graph) -> dict[int, set[int]]:
    """By a tensor's id, the ids of the nodes that read it; 0 stands for the graph's outputs."""
    readers: dict[int, set[int]] = {id(x): {0} for x in graph.outputs}
    for node in graph.nodes:
        for source in node.inputs:
            readers.setdefault(id(source), set()).add(id(node))
    return readers


class RowBlocks:
    """Divides the ops of a graph that have more operations than a limit.

    Two such ops with only ops on single rows between them share their blocks: no value between
    them is stored completely.
    """

    def __init__(self, graph: Graph, work: Callable[[Tensor], int], limit: int) -> None:
        self._work, self._limit, self._readers = work, limit, readers_of(graph)

    def divided(self, node: Tensor, mapped: Mapped) -> Tensor | None:
        """An op as ops on blocks of rows, joined; None for a node that is not divided.

        `mapped` gives the tensors in the places of the node's inputs and of all before them.
        """
        if not self._is_long(node):
            return None
        inside = self._inside(node)
        rows = node.inputs[0].shape[0]
        cost = max(map(self._work, inside.values()))
        units = -(-rows // _ROWS)
        count = min(-(-cost // self._limit), units // 2)
        if count < 2:
            return None
        ends = [min(rows, units * number // count * _ROWS) for number in range(count + 1)]
        blocks = (_Block(inside, mapped, *rows).of(node) for rows in pairwise(ends))
        return ops.concatenate(*blocks, axis=0)

    def _is_long(self, node: Tensor) -> bool:
        op = op_of(node)
        return isinstance(op, Fused) and op.rows_apart and self._work(node) > self._limit

    def _inside(self, node: Tensor) -> dict[int, Tensor]:
        """The nodes that are computed in blocks with a long one, itself included, by their ids."""
        inside = {id(node): node}
        found, needed = False, [node.inputs[0]]
        while needed:
            tensor = needed.pop()
            if id(tensor) in inside:
                continue
            if self._is_long(tensor):
                found = True
            elif _keeps_rows(tensor):
                needed += () if op_of(tensor) in _FILLED else tensor.inputs
            else:
                continue
            inside[id(tensor)] = tensor
        is_read = any(
            self._readers[key] - inside.keys()
            for key, tensor in inside.items()
            if tensor is not node and op_of(tensor) not in _FILLED
        )
        return inside if found and not is_read else {id(node): node}


class _Block:
    """The ops of one block of rows."""

    def __init__(self, inside: dict[int, Tensor], mapped: Mapped, start: int, end: int) -> None:
        self._inside, self._mapped = inside, mapped
        self._start, self._end = start, end
        self._new: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor."""
        if id(tensor) not in self._new:
            is_inside = id(tensor) in self._inside
            self._new[id(tensor)] = self._computed(tensor) if is_inside else self._rows(tensor)
        return self._new[id(tensor)]

    def _computed(self, tensor: Tensor) -> Tensor:
        assert isinstance(tensor.origin, Apply)
        op, attrs = tensor.origin.op, tensor.origin.attrs
        if isinstance(op, Fused) and not op.elementwise:
            x, *others = tensor.inputs
            return op(self.of(x), *map(self._mapped, others), **attrs)
        if op is ops.reshape or op in _FILLED:
            attrs = {**attrs, "shape": (self._end - self._start, *tensor.shape[1:])}
        read = self._mapped if op in _FILLED else self.of
        return op(*map(read, tensor.inputs), **attrs)

    def _rows(self, tensor: Tensor) -> Tensor:
        return f.narrow(ops.barrier(self._mapped(tensor)), 0, self._start, self._end)


def _keeps_rows(node: Tensor) -> bool:
    """Whether each row of a result depends only on the same row of the inputs, at no cost."""
    origin = node.origin
    if not isinstance(origin, Apply):
        return False
    op, attrs = origin.op, origin.attrs
    if op is ops.reshape:
        return node.inputs[0].shape[:1] == node.shape[:1]
    if op is ops.pad:
        return not any(attrs["padding"][0])
    if op is ops.broadcast:
        return 0 not in attrs["axes"]
    return is_elementwise(op) or (op is ops.full and node.type.rank > 0)


def is_elementwise(op: ops.Op) -> bool:
    """Whether each element of a result depends only on the same element of the inputs."""
    return op.elementwise if isinstance(op, Fused) else op in _ELEMENTWISE
