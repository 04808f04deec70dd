"""A function's value and its gradients in one graph, which compiles at the sizes of real models."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import body_of
from hearthd.models.dsl.gradient import vector_jacobian_product
from hearthd.models.dsl.graph import Apply, Tensor, in_order, reapplied
from hearthd.models.dsl.iree_faults.gradients import contracted_broadcast, waiting_kernels
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
    the gradients' products, and before sums over leading axes. Without, the compiler fuses the ops
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
    pairs = waiting_kernels(_applied((value,)), _applied((value, *gradients)), upstream[0])
    return value, _separated(gradients, (value, *with_respect_to), pairs)


def _separated(
    tensors: tuple[Tensor, ...],
    kept: tuple[Tensor, ...],
    pairs: Set[tuple[int, int]] = frozenset(),
) -> tuple[Tensor, ...]:
    """The same values in ops that are lowered, with barriers around products and some sums.

    The tensors `kept`, and all that they are computed from, stay as they are. The node of each of
    the `pairs` reads the other tensor of its pair behind a barrier.
    """
    new = {id(tensor): tensor for tensor in in_order(kept)}
    _separate(_applied(tensors), new, pairs)
    return tuple(new.get(id(tensor), tensor) for tensor in tensors)


def _is_product(node: Tensor) -> bool:
    op = node.origin.op if isinstance(node.origin, Apply) else None
    return op is ops.convolution or (op is not None and op.reads is Reads.LAID_OUT)


def _separate(nodes: Iterable[Tensor], new: dict[int, Tensor], pairs: Set[tuple[int, int]]) -> None:
    """Add the nodes' new forms to `new`, by the identities of the old ones."""

    def mapped(tensor: Tensor) -> Tensor:
        return new.get(id(tensor), tensor)

    def behind_barrier(tensor: Tensor) -> Tensor:
        source = mapped(tensor)
        return ops.barrier(source) if isinstance(source.origin, Apply) else source

    def read(node: Tensor, tensor: Tensor) -> Tensor:
        is_separate = (id(node), id(tensor)) in pairs or contracted_broadcast(node)
        return behind_barrier(tensor) if is_separate else mapped(tensor)

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


def _applied(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in in_order(outputs) if isinstance(tensor.origin, Apply))
