"""The weights of a model as they are stored, and the rules that have a graph read them so.

A model is traced with f32 weights. `stored_graph` replaces the products with a matrix, and the
lookups of its rows, by products with and lookups in its stored form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Apply, Graph, Parameter, Tensor
from hearthd.models.dsl.rewrites.rewrite import Rule, node, rewritten, variables
from hearthd.models.dsl.storage import F32, Storage
from hearthd.models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

_WEIGHT = "weight"


@dataclass(frozen=True, kw_only=True, eq=False)
class Weight:
    """Weights of a model that a bundle stores together.

    sources     the model's parameters by name, with their shapes: the rows of several matrices
                follow each other
    storage     how they are stored
    parameters  the stored arrays by name, in the order of `storage.arrays`
    """

    sources: Mapping[str, tuple[int, ...]]
    storage: Storage
    parameters: Mapping[str, Tensor]

    def rows(self) -> dict[str, range]:
        """The rows of each source, by its name."""
        ranges, start = {}, 0
        for name, shape in self.sources.items():
            ranges[name] = range(start, start + shape[0])
            start += shape[0]
        return ranges

    @property
    def partial(self) -> tuple[str, ...]:
        """The names of arrays that logits read only some blocks of."""
        partial = self.storage.partial
        return tuple(name for name in self.parameters if name.rpartition(".")[2] in partial)


def plain_weights(parameters: Mapping[str, Tensor]) -> tuple[Weight, ...]:
    """A model's parameters, each stored as it is."""
    return tuple(
        Weight(sources={name: tensor.shape}, storage=F32, parameters={name: tensor})
        for name, tensor in parameters.items()
    )


@dataclass(eq=False)
class Weights:
    """The weights of a model, and how each of them is stored. Tensors are told by identity."""

    named: Mapping[str, Tensor]
    _stored: dict[int, Weight] = field(default_factory=dict)
    _stacks: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tensor, weight in zip(self.named.values(), plain_weights(self.named), strict=True):
            self._stored[id(tensor)] = weight

    def position(self, tensor: Tensor) -> int:
        """The place of one of the model's parameters among all of them."""
        return next(i for i, parameter in enumerate(self.named.values()) if parameter is tensor)

    def stacked(self, tensors: Sequence[Tensor]) -> Tensor:
        """The matrix that has the rows of several ones, one after the other."""
        key = tuple(map(id, tensors))
        if key not in self._stacks:
            rows = sum(tensor.shape[0] for tensor in tensors)
            stack = Tensor(tensors[0].type.with_shape(rows, tensors[0].shape[1]), Parameter())
            sources: dict[str, tuple[int, ...]] = {}
            for tensor in tensors:
                sources |= self._stored[id(tensor)].sources
            name = _stacked_name(list(sources))
            self._stored[id(stack)] = Weight(sources=sources, storage=F32, parameters={name: stack})
            self._stacks[key] = stack
        return self._stacks[key]

    def store(self, tensor: Tensor, storage: Storage) -> None:
        """Store a matrix in another way; raises TypeRuleError if its shape does not allow it."""
        before = self._stored[id(tensor)]
        if storage is before.storage:
            return
        (name,) = before.parameters
        stem = name.removesuffix(_WEIGHT)
        arrays = storage.arrays(*tensor.shape)
        parameters = {stem + suffix: Tensor(type_, Parameter()) for suffix, type_ in arrays.items()}
        self._stored[id(tensor)] = Weight(
            sources=before.sources, storage=storage, parameters=parameters
        )

    def stored(self, tensor: Tensor) -> Weight:
        """How one of the weights is stored."""
        return self._stored[id(tensor)]

    def parameters(self) -> dict[str, Tensor]:
        """Every stored array by its name."""
        return {
            name: tensor
            for weight in self._stored.values()
            for name, tensor in weight.parameters.items()
        }

    def read_by(self, graphs: Iterable[Graph]) -> tuple[Weight, ...]:
        """The weights that graphs read, in the order of the model's parameters."""
        used = {name for graph in graphs for name in graph.parameters}
        order = {name: i for i, name in enumerate(self.named)}
        weights = [weight for weight in self._stored.values() if used & weight.parameters.keys()]
        return tuple(sorted(weights, key=lambda weight: order[next(iter(weight.sources))]))


def _stacked_name(names: list[str]) -> str:
    """`a.q_proj.weight` and `a.k_proj.weight` become `a.q_proj+k_proj.weight`."""
    stem = names[0].removesuffix(f".{_WEIGHT}").rpartition(".")[0]
    modules = [name.removesuffix(f".{_WEIGHT}").rpartition(".")[2] for name in names]
    return f"{stem}.{'+'.join(modules)}.{_WEIGHT}".removeprefix(".")


# --- rules

_x, _weight, _ids, _margin, _chosen = variables("x weight ids margin chosen")
_product = node(f.times_weight.op, _x, _weight)
_logits = node(f.approximate_logits.op, _product, _margin)
_some_logits = node(f.approximate_logits.op, node(ops.slice_, _product, bounds="bounds"), _margin)
_capped = node(f.soft_cap.op, _product, cap="cap")
_capped_logits = node(f.approximate_logits.op, _capped, _margin)
_draft_logits = node(f.draft_logits.op, _product)
_capped_draft_logits = node(f.draft_logits.op, _capped)
_embedding = node(f.embedding.op, _ids, _weight)
_routed = node(f.routed_linear.op, _x, _chosen, _weight, experts="experts")
# Where these ops have their matrix.
_MATRIX = {f.times_weight.op: 1, f.embedding.op: 1, f.routed_linear.op: 2}


def store_matrices(
    graphs: Sequence[Graph], weights: Weights, storage: Callable[[Tensor], Storage]
) -> None:
    """Store the matrices of products and lookups as `storage` says.

    Raises TypeRuleError for a matrix whose shape does not allow it.
    """
    multiplied: dict[int, Tensor] = {}
    looked_up: set[int] = set()
    drafting: set[int] = set()
    for graph in graphs:
        for tensor in graph.nodes:
            origin = tensor.origin
            assert isinstance(origin, Apply)
            is_draft = origin.op is f.draft_logits.op
            if is_draft or origin.op is f.approximate_logits.op:
                origin = origin.inputs[0].origin
                if isinstance(origin, Apply) and origin.op in (ops.slice_, f.soft_cap.op):
                    origin = origin.inputs[0].origin
                is_table = isinstance(origin, Apply) and origin.op is f.times_weight.op
            else:
                is_table = origin.op is f.embedding.op
            if isinstance(origin, Apply) and origin.op in _MATRIX:
                weight = origin.inputs[_MATRIX[origin.op]]
                if isinstance(weight.origin, Parameter):
                    multiplied[id(weight)] = weight
                    looked_up |= {id(weight)} if is_table else set()
                    drafting |= {id(weight)} if is_draft else set()
    for key, weight in multiplied.items():
        chosen = storage(weight)
        chosen = (key in looked_up and chosen.table) or chosen
        weights.store(weight, (key in drafting and chosen.sketched) or chosen)


def stored_graph(
    graph: Graph, weights: Weights, activation_bits: int
) -> tuple[Graph, Counter[str]]:
    """The graph on stored matrices, and how often a rule was applied.

    Products with matrices of integers round activations to `activation_bits`, except those with
    tables, which are logits: see models/dsl/activations.py. Raises TypeRuleError for a product that
    a storage does not have.
    """
    rewrite = rewritten(graph, _rules(weights, activation_bits), weights.parameters())
    for refused in rewrite.unsupported.values():
        raise TypeRuleError(refused.reason)
    return rewrite.graph, rewrite.counts


def _without_padding(product: Tensor, weight: Tensor) -> tuple[Tensor]:
    outputs, last = weight.shape[0], product.type.rank - 1
    padded = product.shape[last] != outputs
    return (f.narrow(product, last, 0, outputs) if padded else product,)


def _rules(weights: Weights, activation_bits: int) -> tuple[Rule, ...]:
    """The rules that read matrices as they are stored."""
    bits = {"activation_bits": activation_bits}

    def storage(weight: Tensor) -> Storage:
        return weights.stored(weight).storage

    def arrays(weight: Tensor) -> tuple[Tensor, ...]:
        return tuple(weights.stored(weight).parameters.values())

    def logits(x: Tensor, weight: Tensor, margin: Tensor, **attrs: Any) -> tuple[Tensor]:
        some, cap = attrs["bounds"][1][1] if "bounds" in attrs else None, attrs.get("cap")
        result = storage(weight).logits(x, margin, *arrays(weight), outputs=some, cap=cap)
        if some is None:
            (result,) = _without_padding(result, weight)
        return (result if cap is None else f.soft_cap(result, cap=cap),)

    def draft_logits(x: Tensor, weight: Tensor, cap: float | None = None) -> tuple[Tensor]:
        (result,) = _without_padding(storage(weight).drafts(x, *arrays(weight)), weight)
        return (result if cap is None else f.soft_cap(result, cap=cap),)

    return (
        *(
            Rule(name="sketched_head", pattern=(pattern,), replacement=draft_logits)
            for pattern in (_draft_logits, _capped_draft_logits)
        ),
        *(
            Rule(name="two_part_head", pattern=(pattern,), replacement=logits)
            for pattern in (_logits, _some_logits, _capped_logits)
        ),
        Rule(
            name="matrix",
            pattern=(_product,),
            replacement=lambda x, weight: _without_padding(
                storage(weight).product(x, *arrays(weight), **bits), weight
            ),
        ),
        Rule(
            name="experts",
            pattern=(_routed,),
            replacement=lambda x, chosen, weight, experts: (
                storage(weight).routed(x, chosen, *arrays(weight), experts=experts, **bits),
            ),
        ),
        Rule(
            name="embedding",
            pattern=(_embedding,),
            replacement=lambda ids, weight: (storage(weight).rows(ids, *arrays(weight)),),
        ),
    )
