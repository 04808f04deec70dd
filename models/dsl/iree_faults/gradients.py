"""Faults that gradients of functions meet."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.ops.reduction import reduce_max, reduce_sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hearthd.models.dsl.graph import Tensor


def contracted_broadcast(node: Tensor) -> bool:
    """Whether a node is a reduction over the first axis that has more than one element.

    It must read its operand behind a barrier. The compiler refuses to write the operand from the
    kernel of the reduction, and makes an invalid contraction of a product with a broadcast.
    """
    assert isinstance(node.origin, Apply)
    if node.origin.op not in (reduce_sum, reduce_max):
        return False
    shape = node.inputs[0].shape
    first = next((axis for axis, extent in enumerate(shape) if extent > 1), None)
    return first in node.origin.attrs["axes"]


def waiting_kernels(
    function: Sequence[Tensor], nodes: Sequence[Tensor], upstream: Tensor
) -> set[tuple[int, int]]:
    """Where a gradient meets a value of the function that it does not depend on.

    Pairs of identities: of the node that reads both, and of the value, which is read on the way to
    a product, too, and which the node must read behind a barrier. The compiler computes such values
    and what their gradients multiply in one kernel. Two of these can each wait for the other.

    function  the nodes of the function, in order
    nodes     the nodes of the function and of its gradients
    upstream  the gradient of the function's value
    """
    # Sets of the function's nodes, as bits: those that a tensor depends on, and the last of those.
    needed, last = dict[int, int](), dict[int, int]()
    for i, node in enumerate(function):
        needed[id(node)] = _union(needed, node.inputs) | 1 << i
        last[id(node)] = 1 << i
    arrived = {id(upstream)}
    pairs = set[tuple[int, int]]()
    constant = _constant(nodes)
    for node in nodes:
        if id(node) in needed:
            continue
        needed[id(node)] = _union(needed, node.inputs)
        parts = [source for source in node.inputs if id(source) in arrived]
        if not parts:
            last[id(node)] = _union(last, node.inputs)
            continue
        arrived.add(id(node))
        if all(id(source) in constant for source in parts):
            continue
        known = _union(needed, parts)
        pairs.update(
            (id(node), id(source)) for source in node.inputs if last.get(id(source), 0) & ~known
        )
    return pairs


def _constant(nodes: Iterable[Tensor]) -> set[int]:
    """The nodes that no input and no parameter leads to, by their identities."""
    constant = set[int]()
    for node in nodes:
        if constant.issuperset(map(id, node.inputs)):
            constant.add(id(node))
    return constant


def _union(bits: dict[int, int], tensors: Iterable[Tensor]) -> int:
    return functools.reduce(operator.or_, (bits.get(id(tensor), 0) for tensor in tensors), 0)
