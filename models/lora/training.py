"""LoRA: frozen matrices with trained low-rank terms, added to a traced graph (Hu et al., 2021).

A product x W^T becomes x W^T + (alpha / rank) (x A^T) B^T; for training, with dropout of this x. In
shape comments `R` is the rank, `K` the width of x, and `N` the rows of W.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Apply, Graph, Input, Tensor, make_graph, rebuilt
from hearthd.models.dsl.types import DslError, DType, TensorType
from hearthd.models.dsl.value_and_grad import value_and_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.optimizers import Optimizer

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Which matrices have low-rank terms, as in PEFT's LoraConfig.

    rank         R
    alpha        the terms are multiplied by alpha / rank
    projections  the matrices, by the last part of their modules' names
    dropout      the share of the inputs of A that are replaced by 0

    Raises DslError for a rank below 1, and for a dropout below 0 or of 1 and more.
    """

    rank: int
    alpha: float
    projections: tuple[str, ...] = PROJECTIONS
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise DslError(f"rank: expected at least 1, got {self.rank}")
        if not 0 <= self.dropout < 1:
            raise DslError(f"dropout: expected at least 0 and below 1, got {self.dropout}")

    def adapter(self, module: str, weight: Tensor, dtype: DType) -> dict[str, Tensor]:
        """A (R, K) and B (N, R) of a matrix, by name."""
        rows, columns = weight.shape
        shapes = {
            f"{module}.lora_A.weight": (self.rank, columns),
            f"{module}.lora_B.weight": (rows, self.rank),
        }
        return {
            name: Tensor(TensorType(shape, dtype), Input(name)) for name, shape in shapes.items()
        }


def adapted(
    graph: Graph, parameters: Mapping[str, Tensor], lora: Lora
) -> tuple[Graph, dict[str, Tensor]]:
    """Add low-rank terms to the products with the chosen matrices.

    graph       a model's traced graph, in which its products are `f.times_weight`
    parameters  the model's weights by name

    Returns the graph, whose last inputs are the adapters, and the adapters by name: A (R, K) and
    B (N, R) of `a.q_proj.weight` are `a.q_proj.lora_A.weight` and `a.q_proj.lora_B.weight`, as in
    PEFT. With dropout, the input before them is a seed, i32 (); each matrix drops other elements.
    Raises DslError for a projection that the graph does not have.
    """
    dtypes = {id(_weight(node)): node.dtype for node in graph.nodes}
    pairs: dict[int, dict[str, Tensor]] = {}
    missing = set(lora.projections)
    for name, weight in parameters.items():
        module = name.removesuffix(".weight")
        projection = module.rpartition(".")[2]
        if projection in lora.projections and id(weight) in dtypes:
            pairs[id(weight)] = lora.adapter(module, weight, dtypes[id(weight)])
            missing.discard(projection)
    if missing:
        raise DslError(f"{graph.name}: no product with a matrix {', '.join(sorted(missing))}")

    seed = Tensor(TensorType((), DType.I32), Input("dropout_seed"))
    streams = {key: stream for stream, key in enumerate(pairs)}

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        weight = _weight(node)
        if id(weight) not in pairs:
            return None
        assert weight is not None
        x = dropped = mapped(node.inputs[0])
        if lora.dropout:
            dropped = f.dropout(x, seed, rate=lora.dropout, stream=streams[id(weight)])
        term = _low_rank(dropped, *pairs[id(weight)].values())
        return f.times_weight(x, weight) + term * (lora.alpha / lora.rank)

    adapters = {name: tensor for pair in pairs.values() for name, tensor in pair.items()}
    seeds = [seed] * bool(lora.dropout)
    extended = dataclasses.replace(graph, inputs=(*graph.inputs, *seeds, *adapters.values()))
    return rebuilt(extended, replace), adapters


def gradient_graph(
    graph: Graph, adapters: Mapping[str, Tensor], name: str, *, recompute: bool = False
) -> Graph:
    """The graph of a loss and of its gradients by the adapters, in their order.

    `recompute` as in `value_and_grad`.
    """
    loss, gradients = value_and_grad(
        lambda: graph.outputs[0], by=tuple(adapters.values()), recompute=recompute
    )
    return make_graph(name, graph.inputs, (loss, *gradients), graph.parameters, {})


def train_step(graph: Graph, adapters: Mapping[str, Tensor], optimizer: Optimizer) -> Graph:
    """The graph (adapters, state, batch) -> (next adapters, next state, loss).

    graph  of a loss, with the adapters among its inputs; the batch are the other ones
    """
    types = {name: adapter.type for name, adapter in adapters.items()}
    state = {
        name: Tensor(tensor_type, Input(name))
        for name, tensor_type in optimizer.state(types).items()
    }
    step = gradient_graph(graph, adapters, "train_step")
    loss, *gradients = step.outputs
    named = dict(zip(adapters, gradients, strict=True))
    new, after = optimizer.update(adapters, named, state)
    batch = tuple(tensor for tensor in graph.inputs if tensor not in adapters.values())
    inputs = (*adapters.values(), *state.values(), *batch)
    outputs = (*new.values(), *after.values(), loss)
    return make_graph(step.name, inputs, outputs, step.parameters, {})


def sum_graph(
    graph: Graph, adapters: Mapping[str, Tensor], name: str, *, recompute: bool = False
) -> Graph:
    """The graph (adapters, sums, batch) -> (sums + gradients, loss), to add up several batches.

    graph      as in `train_step`
    recompute  as in `value_and_grad`
    """
    sums = {key: Tensor(tensor.type, Input(f"{key}.sum")) for key, tensor in adapters.items()}
    loss, *gradients = gradient_graph(graph, adapters, name, recompute=recompute).outputs
    new = [total + g for total, g in zip(sums.values(), gradients, strict=True)]
    batch = tuple(tensor for tensor in graph.inputs if tensor not in adapters.values())
    inputs = (*adapters.values(), *sums.values(), *batch)
    return make_graph(name, inputs, (*new, loss), graph.parameters, {})


def update_graph(adapters: Mapping[str, Tensor], optimizer: Optimizer, name: str) -> Graph:
    """The graph (adapters, state, sums) -> (next adapters, next state), after `sum_graph`."""
    types = {key: tensor.type for key, tensor in adapters.items()}
    weights, sums = (
        {key: Tensor(type_, Input(f"{key}{suffix}")) for key, type_ in types.items()}
        for suffix in ("", ".sum")
    )
    state = {key: Tensor(type_, Input(key)) for key, type_ in optimizer.state(types).items()}
    new, after = optimizer.update(weights, sums, state)
    inputs = (*weights.values(), *state.values(), *sums.values())
    return make_graph(name, inputs, (*new.values(), *after.values()), {}, {})


def _weight(node: Tensor) -> Tensor | None:
    """The matrix of a product with one."""
    origin = node.origin
    is_product = isinstance(origin, Apply) and origin.op is f.times_weight.op
    return node.inputs[1] if is_product else None


def _low_rank(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(x A^T) B^T: (..., K), (R, K) and (N, R) -> (..., N)."""
    # Not `f.times_weight`: adapters are not stored as matrices are.
    for factor in (a, b):
        contract = ((x.type.rank - 1,), (1,))
        x = ops.dot_general(x, factor, batch=((), ()), contract=contract, dtype=x.dtype)
    return x
