"""Fusion: which parts of a traced graph are computed together. The table is KERNEL_RULES.

A model is written in plain functions. Here its graphs are rewritten: products that share their
input become one, matrices are stored as a precision says, and what has a C kernel of its own is
replaced by it. Where shapes do not allow a fusion, the plain functions stay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.bundle import NO_PLACES, AdapterPlaces
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.adapter_fusion import with_adapted_products
from hearthd.models.dsl.adapter_rewrite import PlaceRewriter, Places
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Graph, Parameter, Tensor, deduplicated, rebuilt
from hearthd.models.dsl.merged_slices import with_merged_slices
from hearthd.models.dsl.rewrite import Node, Part, Rule, node, rewritten, variables
from hearthd.models.dsl.stored_weights import Weight, Weights, store_matrices, stored_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.models.dsl.rewrite import Pattern
    from hearthd.models.dsl.storage import Storage


def norm(x: Pattern, weight: Pattern) -> Node:
    """The pattern of RMSNorm."""
    return node(f.rms_norm.op, x, weight, eps="eps")


h, y, after, before, weight, cosine, sine = variables("h y after before weight cosine sine")
query, key, value, start = variables("query key value start")
key_scale, value_scale, cache, places = variables("key_scale value_scale cache places")
heads = Part(ops.slice_, "x", "heads")
some_heads = Part(ops.slice_, "x", "heads", "rows")
sum_of_normed = node(ops.add, h, norm(y, after))
plain_sum = node(ops.add, h, y)


def both(pair: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, and the sum normalized, of one kernel's result."""
    return f.at(pair, 0), f.at(pair, 1)


# Each row: what is matched, and what replaces it. Earlier rows go first.
KERNEL_RULES = (
    Rule(
        name="residual_norm",  # Gemma: the sublayer's norm, the add, the next sublayer's norm
        pattern=(sum_of_normed, norm(sum_of_normed, before)),
        replacement=lambda h, y, after, before, eps: both(
            fused.residual_norm(h, y, after, before, eps=eps)
        ),
    ),
    Rule(
        name="add_norm",  # Llama: the add, the next sublayer's norm
        pattern=(plain_sum, norm(plain_sum, before)),
        replacement=lambda h, y, before, eps: both(fused.add_norm(h, y, before, eps=eps)),
    ),
    Rule(
        name="norm_rope",  # Gemma: the norm of queries or keys, then RoPE
        pattern=(node(f.rope.op, norm(heads, weight), cosine, sine),),
        replacement=lambda x, heads, weight, cosine, sine, eps: (
            fused.norm_rope(x, weight, cosine, sine, heads=heads, eps=eps),
        ),
    ),
    Rule(
        name="rope",  # Llama: RoPE
        pattern=(node(f.rope.op, heads, cosine, sine),),
        replacement=lambda x, heads, cosine, sine: (fused.rope(x, cosine, sine, heads=heads),),
    ),
    Rule(
        name="cached_attention",
        pattern=(
            node(
                f.cached_attention.op, query, key, value, start,
                keys="keys", window="window", scale="scale", cap="cap",
            ),
        ),
        replacement=lambda **bound: (
            fused.cached_attention(
                bound.pop("query"), bound.pop("key"), bound.pop("value"), bound.pop("start"),
                **bound,
            ),
        ),
    ),
    Rule(
        name="int8_cache_attention",
        pattern=(
            node(
                f.int8_cache_attention.op, query, key, value, key_scale, value_scale, start,
                keys="keys", window="window", scale="scale", cap="cap",
            ),
        ),
        replacement=lambda **bound: (
            fused.int8_cache_attention(
                bound.pop("query"), bound.pop("key"), bound.pop("value"), bound.pop("key_scale"),
                bound.pop("value_scale"), bound.pop("start"), **bound,
            ),
        ),
    ),
    Rule(
        name="gated_silu",  # Llama: the middle of its feed-forward layer
        pattern=(node(ops.multiply, node(f.silu.op, h), y),),
        replacement=lambda h, y: (fused.gated_silu(h, y),),
    ),
    Rule(
        name="gated_gelu_tanh",  # Gemma
        pattern=(node(ops.multiply, node(f.gelu_tanh.op, h), y),),
        replacement=lambda h, y: (fused.gated_gelu_tanh(h, y),),
    ),
    Rule(
        name="write_f16_rows",
        pattern=(node(f.write_f16_rows.op, cache, places, some_heads),),
        replacement=lambda cache, places, x, heads, rows: (
            fused.write_f16_rows(cache, places, x, rows=rows, heads=heads),
        ),
    ),
    Rule(
        name="write_int8_rows",
        pattern=(node(f.write_int8_rows.op, cache, places, h),),
        replacement=lambda cache, places, h: (fused.write_int8_rows(cache, places, h),),
    ),
    Rule(
        name="write_row_scales",
        pattern=(node(f.write_row_scales.op, cache, places, h),),
        replacement=lambda cache, places, h: (fused.write_row_scales(cache, places, h),),
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """Graphs after the rewrite.

    graphs   in the order of those that were given
    weights  what they read, in the order of the model's parameters
    counts   for each graph, how often a rule was applied, by its name
    unsupported  for each graph, the reason and the number of what a rule left as it is, by its name
    adapters the places for LoRA adapters
    """

    graphs: tuple[Graph, ...]
    weights: tuple[Weight, ...]
    counts: tuple[Mapping[str, int], ...]
    unsupported: tuple[Mapping[str, tuple[str, int]], ...]
    adapters: AdapterPlaces = NO_PLACES


def optimized(
    graphs: Sequence[Graph],
    parameters: Mapping[str, Tensor],
    *,
    storage: Callable[[str], Storage],
    kernels: bool,
    places: Places | None = None,
    activation_bits: int = 16,
) -> Optimized:
    """Rewrite the graphs of one model, which share their weights.

    parameters  every weight of the model, by name
    storage     how the matrix of a parameter is stored, by its name
    kernels     whether norms, RoPE and attention also use C kernels
    places      for LoRA adapters, in some of the graphs
    activation_bits  to which products with matrices of integers round activations, 16 or 8

    Raises TypeRuleError for a matrix that cannot be stored so.
    """
    weights = Weights(parameters)

    def storage_of(matrix: Tensor) -> Storage:
        return storage(next(iter(weights.stored(matrix).sources)))

    stacks = _stacks(graphs, weights, storage_of)
    stacked = [_with_stacks(graph, stacks, weights) for graph in graphs]
    adapters = NO_PLACES
    if places is not None:
        rewriter = PlaceRewriter(weights, places, [graph for graph, _ in stacked])
        stacked = [(rewriter.rewritten(graph), count) for graph, count in stacked]
        adapters = rewriter.result()
    store_matrices([graph for graph, _ in stacked], weights, storage_of)
    done, counts, unsupported = [], [], []
    for graph, count in stacked:
        graph, read = stored_graph(graph, weights, activation_bits)
        graph = with_merged_slices(graph)
        rewrite = rewritten(graph, KERNEL_RULES if kernels else (), weights.parameters())
        graph, adapted = with_adapted_products(rewrite.graph, weights.parameters())
        done.append(deduplicated(inlined(graph)))
        counts.append(count + read + rewrite.counts + adapted)
        unsupported.append(rewrite.unsupported)
    return Optimized(
        graphs=tuple(done),
        weights=weights.read_by(done),
        counts=tuple(counts),
        unsupported=tuple(unsupported),
        adapters=adapters,
    )


# --- products of the same rows, split into heads: queries, keys and values


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


def _stacks(
    graphs: Sequence[Graph], weights: Weights, stored: Callable[[Tensor], Storage]
) -> dict[int, tuple[Tensor, int]]:
    """Stack matrices: by the identity of each, the stack and the row where its own rows start.

    All graphs share the stacks, so one that needs some of the rows computes all of them. Matrices
    of a stack are stored in the same way.
    """
    groups = [
        tuple(matrix for matrix in matrices if stored(matrix) is storage)
        for graph in graphs
        for products in _products_of_heads(graph).values()
        for matrices in [sorted(map(_weight, products), key=weights.position)]
        for storage in dict.fromkeys(map(stored, matrices))
    ]
    stacks: dict[int, tuple[Tensor, int]] = {}
    for group in sorted(groups, key=len, reverse=True):
        if len(group) > 1 and not any(id(matrix) in stacks for matrix in group):
            stack, start = weights.stacked(group), 0
            for matrix in group:
                stacks[id(matrix)] = (stack, start)
                start += matrix.shape[0]
    return stacks


def _with_stacks(
    graph: Graph, stacks: Mapping[int, tuple[Tensor, int]], weights: Weights
) -> tuple[Graph, Counter[str]]:
    """The graph with one product in the place of those whose matrices are stacked."""
    chosen = {
        id(tensor): stacks[id(_weight(tensor))]
        for products in _products_of_heads(graph).values()
        for tensor in products
        if id(_weight(tensor)) in stacks
    }
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
    return result, Counter(stacked_heads=len(products)) if products else Counter()
