"""One product in place of the products for queries, keys and values, which read the same rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Apply, Graph, Parameter, Tensor, rebuilt
from hearthd.models.dsl.matrix_format import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.models.dsl.rewrites.stored_weights import Weights
    from hearthd.models.dsl.storage import Storage


def _products_of_heads(graph: Graph) -> dict[tuple[int, int], list[Tensor]]:
    """Products with a weight that are split into heads, by their input and the heads' width."""
    readers = Counter(id(source) for node in graph.nodes for source in node.inputs)
    products: dict[tuple[int, int], list[Tensor]] = {}
    for tensor in graph.nodes:
        if not (isinstance(tensor.origin, Apply) and tensor.origin.op is ops.reshape):
            continue
        (product,) = tensor.inputs
        if (
            isinstance(product.origin, Apply)
            and product.origin.op is f.times_weight.op
            and isinstance(product.inputs[1].origin, Parameter)
            and readers[id(product)] == 1
            and tensor.type.rank == 3
            and product.shape == (tensor.shape[0], tensor.shape[1] * tensor.shape[2])
        ):
            group = (id(product.inputs[0]), tensor.shape[2])
            products.setdefault(group, []).append(tensor)
    return products


def _weight(heads: Tensor) -> Tensor:
    """The weight of a product that is split into heads."""
    return heads.inputs[0].inputs[1]


def stacked_matrices(
    graphs: Sequence[Graph], weights: Weights, stored: Callable[[Tensor], Storage]
) -> dict[int, tuple[Tensor, int]]:
    """Stack matrices: by the identity of each, the stack and the row where its own rows start.

    All graphs share the stacks, so one that needs some of the rows computes all of them. Matrices
    of a stack are stored in the same way. Matrices of integers are written one by
    one, with rows added up to a multiple of sixteen: only the last of a stack may need them.
    """
    groups = [
        tuple(matrix for matrix in matrices if stored(matrix) is storage)
        for graph in graphs
        for products in _products_of_heads(graph).values()
        for matrices in [sorted(map(_weight, products), key=weights.position)]
        for storage in dict.fromkeys(map(stored, matrices))
    ]

    def padded_inside(group: Sequence[Tensor]) -> bool:
        is_integers = stored(group[0]).format is not None
        return is_integers and any(matrix.shape[0] % ROWS for matrix in group[:-1])

    stacks: dict[int, tuple[Tensor, int]] = {}
    for group in sorted(groups, key=len, reverse=True):
        is_stacked = any(id(matrix) in stacks for matrix in group)
        if len(group) > 1 and not is_stacked and not padded_inside(group):
            stack, start = weights.stacked(group), 0
            for matrix in group:
                stacks[id(matrix)] = (stack, start)
                start += matrix.shape[0]
    return stacks


def with_stacked_heads(
    graph: Graph, stacks: Mapping[int, tuple[Tensor, int]], weights: Weights
) -> tuple[Graph, Counter[str]]:
    """The graph with one product in place of the products whose matrices are stacked."""
    chosen = {
        id(tensor): stacks[id(_weight(tensor))]
        for products in _products_of_heads(graph).values()
        for tensor in products
        if id(_weight(tensor)) in stacks
    }
    if not chosen:
        return graph, Counter()
    products: dict[tuple[int, int], Tensor] = {}

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        if id(node) not in chosen:
            return None
        stack, row = chosen[id(node)]
        x, width = mapped(node.inputs[0].inputs[0]), node.shape[2]
        if (id(x), id(stack)) not in products:
            product = f.split_heads(f.times_weight(x, stack), width)
            products[id(x), id(stack)] = product
        first = row // width
        return f.narrow(products[id(x), id(stack)], 1, first, first + node.shape[1])

    result = rebuilt(graph, replace, weights.parameters())
    return result, Counter(stacked_heads=len(products))
