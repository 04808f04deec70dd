"""The embeddings of tokens, as a prefill that also reads rows looks them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply, Graph, Input, Tensor, make_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.program import Program


def embeddings(
    program: Program, tokens: Sequence[int], parameters: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """The rows of tokens, at most as many as the largest prefill reads: f32 (n, E)."""
    graph = max(
        (graph for point, graph in program.entry_points if point.kind == "prefill_rows"),
        key=lambda graph: graph.inputs[0].shape,
    )
    ids = np.zeros(graph.inputs[0].shape, np.int32)
    ids[: len(tokens)] = tokens
    lookup = make_graph("lookup", graph.inputs[:1], (_looked_up(graph),), graph.parameters, {})
    (rows,) = evaluate(lookup, [ids], parameters)
    return np.asarray(rows[: len(tokens)], np.float32)


def _looked_up(graph: Graph) -> Tensor:
    """The embeddings of tokens that a prefill of rows chooses from."""
    (rows,) = (tensor for tensor in graph.inputs if tensor.origin == Input("rows"))
    (chosen,) = (
        node
        for node in graph.nodes
        if isinstance(node.origin, Apply)
        and node.origin.op is ops.select
        and node.inputs[1] is rows
    )
    return chosen.inputs[2]
