"""A function's value and its gradients in one graph, which compiles at the sizes of real models."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import body_of
from hearthd.models.dsl.gradient import vector_jacobian_product
from hearthd.models.dsl.graph import Apply, Tensor, in_order, reapplied
from hearthd.models.dsl.ops.record import Reads
from hearthd.models.dsl.recomputation import with_recomputation
from hearthd.models.dsl.types import DslError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set


def value_and_grad(
    function: Callable[..., Tensor],
    *arguments: Tensor,
    by: Sequence[Tensor] | None = None,
    recompute: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """function(*arguments), a float scalar, and its gradients: one for each tensor of `by`.

    `by` are any tensors of the trace that the function reads, such as a module's parameters; if it
    is not given, they are the arguments. With `recompute`, the gradients compute most values of the
    function again, which takes less memory (models/dsl/recomputation.py). Raises DslError unless
    the value is a float scalar, and NoGradientError as `gradients` does.

    Value and gradients are computed with a barrier behind each product and each convolution, before
    those of the gradients, and before sums over leading axes. Without, IREE 3.13.0 fuses the ops
    that read a large product into one kernel, and then refuses its size; and it refuses to write
    what such a sum reads from the kernel of the sum, which runs in one workgroup. Gradients of
    functions that are linear in some tensors have more barriers.
    """
    value = function(*arguments)
    if value.shape or not value.dtype.is_float:
        raise DslError(f"value_and_grad: expected a float scalar of the function, got {value.type}")
    with_respect_to = arguments if by is None else tuple(by)
    (value,) = _separated((value,), with_respect_to)
    upstream = (ops.full_like(value, 1.0),)
    gradients = vector_jacobian_product(_applied((value,)), (value,), upstream, with_respect_to)
    if recompute:
        gradients = with_recomputation(value, gradients)
    apart = _independent_values(gradients, value, upstream[0])
    return value, _separated(gradients, (value, *with_respect_to), apart)


def _separated(
    tensors: tuple[Tensor, ...],
    kept: tuple[Tensor, ...],
    apart: Set[tuple[int, int]] = frozenset(),
) -> tuple[Tensor, ...]:
    """The same values in ops that are lowered, with barriers around products and some sums.

    The tensors `kept`, and those that they are computed from, stay as they are. The nodes of the
    pairs `apart` read the other tensor of the pair behind a barrier.
    """
    new = {id(tensor): tensor for tensor in in_order(kept)}
    _separate(_applied(tensors), new, apart)
    return tuple(new.get(id(tensor), tensor) for tensor in tensors)


def _independent_values(
    gradients: tuple[Tensor, ...], value: Tensor, upstream: Tensor
) -> set[tuple[int, int]]:
    """Where a gradient meets a value of the function that it does not depend on.

    Pairs of identities: of the node that reads both, and of the value, which is read on the way to
    a product, too. IREE 3.13.0 computes such values and what their gradients multiply in one
    kernel. Two of these can each wait for the other (docs/iree-reports/waiting_kernels.mlir).
    """
    function = _applied((value,))
    # Sets of the function's nodes, as bits: those that a tensor depends on, and the last of those.
    needed, last = dict[int, int](), dict[int, int]()
    for i, node in enumerate(function):
        needed[id(node)] = _union(needed, node.inputs) | 1 << i
        last[id(node)] = 1 << i
    arrived = {id(upstream)}
    pairs = set[tuple[int, int]]()
    nodes = _applied((value, *gradients))
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


def _is_product(node: Tensor) -> bool:
    op = node.origin.op if isinstance(node.origin, Apply) else None
    return op is ops.convolution or (op is not None and op.reads is Reads.LAID_OUT)


def _union(bits: dict[int, int], tensors: Iterable[Tensor]) -> int:
    return functools.reduce(operator.or_, (bits.get(id(tensor), 0) for tensor in tensors), 0)


def _separate(nodes: Iterable[Tensor], new: dict[int, Tensor], apart: Set[tuple[int, int]]) -> None:
    """Add the nodes' new forms to `new`, by the identities of the old ones."""

    def mapped(tensor: Tensor) -> Tensor:
        return new.get(id(tensor), tensor)

    def behind_barrier(tensor: Tensor) -> Tensor:
        source = mapped(tensor)
        return ops.barrier(source) if isinstance(source.origin, Apply) else source

    def read(node: Tensor, tensor: Tensor) -> Tensor:
        is_apart = (id(node), id(tensor)) in apart or _reduces_rows(node)
        return behind_barrier(tensor) if is_apart else mapped(tensor)

    for node in nodes:
        if id(node) in new:
            continue
        body = body_of(node)
        if body is not None:
            inside = {
                id(old): read(node, argument)
                for old, argument in zip(body.inputs, node.inputs, strict=True)
            }
            _separate(body.nodes, inside, frozenset())
            new[id(node)] = inside[id(body.outputs[0])]
            continue
        copy = reapplied(node, functools.partial(read, node))
        new[id(node)] = ops.barrier(copy) if _is_product(node) else copy


def _reduces_rows(node: Tensor) -> bool:
    """Whether a node is a reduction over the first axis that has more than one element."""
    assert isinstance(node.origin, Apply)
    if node.origin.op not in (ops.reduce_sum, ops.reduce_max):
        return False
    shape = node.inputs[0].shape
    first = next((axis for axis, extent in enumerate(shape) if extent > 1), None)
    return first in node.origin.attrs["axes"]


def _applied(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in in_order(outputs) if isinstance(tensor.origin, Apply))
