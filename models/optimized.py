"""The graphs of a model, optimized together, because they share their weights.

Products that share their input become one, matrices are stored as a precision says, the terms of
LoRA adapters are added, and what has a C kernel of its own is replaced by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import NO_PLACES, AdapterPlaces
from hearthd.models.dsl.composite import body_of, inlined
from hearthd.models.dsl.graph import Graph, Tensor, deduplicated, op_of
from hearthd.models.dsl.ops.control import scan
from hearthd.models.dsl.rewrites.kernel_rules import KERNEL_RULES, RECURRENT_RULES
from hearthd.models.dsl.rewrites.merged_slices import with_merged_slices
from hearthd.models.dsl.rewrites.rewrite import rewritten
from hearthd.models.dsl.rewrites.stacked_heads import stacked_matrices, with_stacked_heads
from hearthd.models.dsl.rewrites.stored_weights import Weight, Weights, store_matrices, stored_graph
from hearthd.models.lora.fusion import with_adapted_products
from hearthd.models.lora.places import PlaceRewriter, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.models.dsl.rewrites.rewrite import Refused
    from hearthd.models.dsl.storage import Storage


_LAYER = re.compile(r"layers\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class Unfused:
    """Parts of a graph that a rule left as they are, because the kernel does not take them.

    reason   the kernel's
    count    how many
    layers   in which layers, ascending; empty if the names of weights do not tell them
    is_loop  whether they loop over tokens without the kernel: such a program cannot be compiled
    """

    reason: str
    count: int
    layers: tuple[int, ...]
    is_loop: bool = False

    @property
    def expected(self) -> str:
        """What the kernel expects: the end of `reason`."""
        return self.reason.rpartition("): ")[2]


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """Graphs after the rewrite.

    graphs   in the order of those that were given
    weights  what they read, in the order of the model's parameters
    counts   for each graph, how often each rewrite was applied, by its name
    unfused  for each graph, what a rule left as it is, by its name
    adapters the places for LoRA adapters
    """

    graphs: tuple[Graph, ...]
    weights: tuple[Weight, ...]
    counts: tuple[Mapping[str, int], ...]
    unfused: tuple[Mapping[str, Unfused], ...]
    adapters: AdapterPlaces = NO_PLACES


def optimized(
    graphs: Sequence[Graph],
    parameters: Mapping[str, Tensor],
    *,
    storage: Callable[[str], Storage],
    kernels: bool,
    recurrent_kernels: bool = True,
    places: Places | None = None,
    activation_bits: Callable[[str], int] = lambda _: 16,
) -> Optimized:
    """Rewrite the graphs of one model, which share their weights.

    parameters  every weight of the model, by name
    storage     how the matrix of a parameter is stored, by its name
    kernels, recurrent_kernels  whether kernels of all parts, or of recurrences, are used
    places      for LoRA adapters, in some of the graphs
    activation_bits  by the name of a graph, to which products round activations: 16 or 8

    Raises TypeRuleError for a matrix that cannot be stored so.
    """
    weights = Weights(parameters)

    def storage_of(matrix: Tensor) -> Storage:
        return storage(next(iter(weights.stored(matrix).sources)))

    rules = KERNEL_RULES if kernels else RECURRENT_RULES if recurrent_kernels else ()
    stacks = stacked_matrices(graphs, weights, storage_of)
    stacked = [with_stacked_heads(graph, stacks, weights) for graph in graphs]
    adapters = NO_PLACES
    if places is not None:
        rewriter = PlaceRewriter(weights, places, [graph for graph, _ in stacked])
        stacked = [(rewriter.rewritten(graph), count) for graph, count in stacked]
        adapters = rewriter.result()
    store_matrices([graph for graph, _ in stacked], weights, storage_of)
    done, counts, unfused = [], [], []
    for graph, count in stacked:
        graph, stored = stored_graph(graph, weights, activation_bits(graph.name))
        graph = with_merged_slices(graph)
        rewrite = rewritten(graph, rules, weights.parameters())
        unfused.append(_unfused(graph, rewrite.unsupported))
        graph, adapted = with_adapted_products(rewrite.graph, weights.parameters())
        done.append(deduplicated(inlined(graph)))
        counts.append(count + stored + rewrite.counts + adapted)
    return Optimized(
        graphs=tuple(done),
        weights=weights.read_by(done),
        counts=tuple(counts),
        unfused=tuple(unfused),
        adapters=adapters,
    )


def _unfused(graph: Graph, unsupported: Mapping[str, Refused]) -> Mapping[str, Unfused]:
    """What rules left, by their names. A node is in the layer whose weights were read last."""
    of_weight = {
        id(tensor): int(match[1])
        for name, tensor in graph.parameters.items()
        if (match := _LAYER.match(name))
    }
    layers: dict[int, int] = {}
    layer: int | None = None
    for node in graph.nodes:
        layer = next((of_weight[id(x)] for x in node.inputs if id(x) in of_weight), layer)
        if layer is not None:
            layers[id(node)] = layer
    return {
        name: Unfused(
            reason=refused.reason,
            count=len(refused.nodes),
            layers=tuple(sorted({layers[id(x)] for x in refused.nodes if id(x) in layers})),
            is_loop=any(map(_is_loop, refused.nodes)),
        )
        for name, refused in unsupported.items()
    }


def _is_loop(node: Tensor) -> bool:
    body = body_of(node)
    return body is not None and any(op_of(inner) is scan for inner in body.nodes)
