"""A function's value and its gradients in one graph, which compiles at the sizes of real models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.composite import body_of
from models.dsl.gradient import vector_jacobian_product
from models.dsl.graph import Apply, Tensor, in_order, reapplied
from models.dsl.ops.record import Reads
from models.dsl.recomputation import with_recomputation
from models.dsl.types import DslError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


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

    Value and gradients are computed with a barrier behind each product, before those of the
    gradients, and before sums over leading axes. Without, IREE 3.13.0 fuses the ops that read a
    large product into one kernel, and then refuses its size; and it refuses to write what such a
    sum reads from the kernel of the sum, which runs in one workgroup.
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
    return value, _separated(gradients, (value, *with_respect_to))


def _separated(tensors: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same values in ops that are lowered, with barriers around products and some sums.

    The tensors `kept`, and those that they are computed from, stay as they are.
    """
    new = {id(tensor): tensor for tensor in in_order(kept)}
    _separate(_applied(tensors), new)
    return tuple(new.get(id(tensor), tensor) for tensor in tensors)


def _separate(nodes: Iterable[Tensor], new: dict[int, Tensor]) -> None:
    """Add the nodes' new forms to `new`, by the identities of the old ones."""

    def mapped(tensor: Tensor) -> Tensor:
        return new.get(id(tensor), tensor)

    def behind_barrier(tensor: Tensor) -> Tensor:
        source = mapped(tensor)
        return ops.barrier(source) if isinstance(source.origin, Apply) else source

    for node in nodes:
        if id(node) in new:
            continue
        body = body_of(node)
        if body is not None:
            inside = {
                id(old): mapped(argument)
                for old, argument in zip(body.inputs, node.inputs, strict=True)
            }
            _separate(body.nodes, inside)
            new[id(node)] = inside[id(body.outputs[0])]
            continue
        made = reapplied(node, behind_barrier if _reduces_rows(node) else mapped)
        assert isinstance(made.origin, Apply)
        is_product = made.origin.op.reads is Reads.LAID_OUT
        new[id(node)] = ops.barrier(made) if is_product else made


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
