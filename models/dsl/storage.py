"""How matrices are stored, and the rules that have a graph read them so.

A model is traced with f32 weights. `stored_graphs` replaces the products with a matrix, and the
lookups of its rows, by those of its stored form.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from models.dsl import functions as f
from models.dsl import ops, packing
from models.dsl.fused.grouped_products import linear_grouped
from models.dsl.fused.halved_products import embedding_halved, two_part_head
from models.dsl.fused.routed_products import (
    linear_routed,
    linear_routed_grouped,
    linear_routed_small,
)
from models.dsl.fused.small_products import FORMS, INT6, INT12, embedding_small, linear_small
from models.dsl.graph import Apply, Graph, Parameter, Tensor
from models.dsl.rewrite import Rule, node, rewritten, variables
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from models.dsl.packing import SmallForm

_WEIGHT = "weight"


@dataclass(frozen=True, kw_only=True, eq=False)
class Storage:
    """A way to store a matrix W (N, K) as one or more arrays.

    name     of the way
    arrays   (N, K) -> the arrays' types, by the last part of their names; raises TypeRuleError
    product  (x, *arrays, activation_bits) -> x W^T, which may have more columns than N: `_halves`
    rows     (ids, *arrays) -> rows of W
    routed   (x, chosen, *arrays, experts, activation_bits) -> products with some of its rows, see
             `f.routed_linear`
    logits   (x, exact, *arrays) -> x W^T, see `f.approximate_logits`
    partial  arrays of which `logits` reads some blocks only
    table    how a matrix is stored whose rows are looked up, or that computes logits; None: so too
    form     of integers that have their lowest four bits apart, if they have
    """

    name: str
    arrays: Callable[[int, int], Mapping[str, TensorType]]
    product: Callable[..., Tensor]
    rows: Callable[..., Tensor]
    routed: Callable[..., Tensor]
    logits: Callable[..., Tensor]
    partial: frozenset[str] = frozenset()
    table: Storage | None = None
    form: SmallForm | None = None


def _plain(name: str, dtype: DType) -> Storage:
    """One array of a dtype. Products do not round activations."""
    return Storage(
        name=name,
        arrays=lambda rows, columns: {_WEIGHT: TensorType((rows, columns), dtype)},
        product=lambda x, weight, **_: f.times_weight(x, weight),
        rows=f.embedding,
        routed=lambda *tensors, experts, **_: linear_routed(*tensors, experts=experts),
        logits=lambda x, _, weight: f.times_weight(x, weight),
    )


def _halves(rows: int, columns: int) -> Mapping[str, TensorType]:
    half = TensorType(packing.half_shape(_padded(rows), columns), DType.I8)
    return {"upper": half, "lower": half, "scale": _scale(half)}


def _padded(rows: int) -> int:
    """The rows that are stored: vocabularies have any number of rows."""
    return -(-rows // packing.ROWS) * packing.ROWS


def _scale(integers: TensorType) -> TensorType:
    return TensorType((*integers.shape[:2], packing.ROWS), DType.F16)


def _groups(rows: int, columns: int) -> Mapping[str, TensorType]:
    integers = TensorType(packing.weight_shape(rows, columns), DType.I8)
    return {_WEIGHT: integers, "scale": _scale(integers)}


def _grouped_product(x: Tensor, weight: Tensor, scale: Tensor, *, activation_bits: int) -> Tensor:
    rows = f.flatten_rows(x)
    return _with_rows_of(x, linear_grouped(rows, weight, scale, activation_bits=activation_bits))


def _with_rows_of(x: Tensor, product: Tensor) -> Tensor:
    return ops.reshape(product, shape=(*x.shape[:-1], product.shape[1]))


def _exact_logits(x: Tensor, upper: Tensor, lower: Tensor, scale: Tensor, **_: int) -> Tensor:
    exact = ops.full(shape=(x.shape[0],), dtype=DType.I32, value=1)
    return two_part_head(x, exact, upper, lower, scale)


def _halved_rows(ids: Tensor, upper: Tensor, lower: Tensor, scale: Tensor) -> Tensor:
    rows = embedding_halved(_flat(ids), upper, lower, scale)
    return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))


def _flat(ids: Tensor) -> Tensor:
    return ops.reshape(ids, shape=(ids.type.size,))


def _small(form: SmallForm, *, is_table: bool = False) -> Storage:
    """Integers of 4, 5, 6 or 12 bits. Logits always have activations of 16 bits, or 12."""
    attrs: Any = {"bits": form.bits, "minimum": form.minimum}

    def arrays(rows: int, columns: int) -> Mapping[str, TensorType]:
        return {
            name: TensorType(shape, DType.I8 if name in ("low", "high") else DType.F16)
            for name, shape in form.shapes(_padded(rows), columns).items()
        }

    def product(x: Tensor, *arrays: Tensor, activation_bits: int) -> Tensor:
        rows = f.flatten_rows(x)
        return _with_rows_of(
            x, linear_small(rows, *arrays, **attrs, activation_bits=activation_bits)
        )

    def logits(x: Tensor, *arrays: Tensor, **_: int) -> Tensor:
        return product(x, *arrays, activation_bits=16)

    def rows(ids: Tensor, *arrays: Tensor) -> Tensor:
        rows = embedding_small(_flat(ids), *arrays, **attrs)
        return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))

    suffix = "-min" if form.minimum else ""
    return Storage(
        name=f"int{form.bits}-g{form.columns}{suffix}",
        arrays=arrays,
        product=logits if is_table else product,
        rows=rows,
        routed=functools.partial(linear_routed_small, **attrs),
        logits=lambda x, _, *arrays: logits(x, *arrays),
        table=None if is_table else _small(form, is_table=True),
        form=form,
    )


def _only_products(*_: Tensor) -> Tensor:
    raise NotImplementedError("int8-g32: rows of a table are stored in halves")


def _only_tables(*_: Tensor, **__: int) -> Tensor:
    raise NotImplementedError("int8-g32 in halves: experts are not tables")


F32 = _plain("f32", DType.F32)
BF16 = _plain("bf16", DType.BF16)
INT8_G32_HALVES = Storage(
    name="int8-g32 in halves",
    arrays=_halves,
    product=_exact_logits,
    rows=_halved_rows,
    routed=_only_tables,
    logits=two_part_head,
    partial=frozenset({"lower"}),
)
INT8_G32 = Storage(
    name="int8-g32",
    arrays=_groups,
    product=_grouped_product,
    rows=_only_products,
    routed=linear_routed_grouped,
    logits=_only_products,
    table=INT8_G32_HALVES,
)


def _in_two_parts(form: SmallForm) -> Storage:
    """As `_small` for a table of integers whose upper part alone gives approximate logits."""
    whole = _small(form, is_table=True)
    return replace(
        whole,
        name=f"{whole.name} in two parts",
        logits=lambda x, exact, low, high, scale: two_part_head(x, exact, high, low, scale),
        partial=frozenset({"low"}),
    )


INT12_G32_TABLE = _in_two_parts(INT12)
INT12_G32 = replace(_small(INT12), table=INT12_G32_TABLE)
INT6_G16_TABLE = _in_two_parts(INT6)
INT6_G16 = replace(_small(INT6), table=INT6_G16_TABLE)
# Ways to store a matrix, by name; those of tables are not among them.
STORAGES: Mapping[str, Storage] = {
    storage.name: storage
    for storage in (
        F32,
        BF16,
        INT8_G32,
        INT12_G32,
        INT6_G16,
        *(_small(form) for form in FORMS if form not in (INT6, INT12)),
    )
}


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
    def partial_bytes(self) -> int:
        """The bytes of arrays of which logits read some blocks only."""
        return sum(
            array.type.nbytes
            for name, array in self.parameters.items()
            if name.rpartition(".")[2] in self.storage.partial
        )


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
        return next(i for i, one in enumerate(self.named.values()) if one is tensor)

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
        parameters = {stem + part: Tensor(type_, Parameter()) for part, type_ in arrays.items()}
        self._stored[id(tensor)] = Weight(
            sources=before.sources, storage=storage, parameters=parameters
        )

    def stored(self, tensor: Tensor) -> Weight:
        """How one of the weights is stored."""
        return self._stored[id(tensor)]

    def parameters(self) -> dict[str, Tensor]:
        """Every stored array by its name."""
        return {
            name: tensor for one in self._stored.values() for name, tensor in one.parameters.items()
        }

    def read_by(self, graphs: Iterable[Graph]) -> tuple[Weight, ...]:
        """The weights that graphs read, in the order of the model's parameters."""
        used = {name for graph in graphs for name in graph.parameters}
        order = {name: i for i, name in enumerate(self.named)}
        weights = [one for one in self._stored.values() if used & one.parameters.keys()]
        return tuple(sorted(weights, key=lambda one: order[next(iter(one.sources))]))


def _stacked_name(names: list[str]) -> str:
    """`a.q_proj.weight` and `a.k_proj.weight` become `a.q_proj+k_proj.weight`."""
    stem = names[0].removesuffix(f".{_WEIGHT}").rpartition(".")[0]
    modules = [name.removesuffix(f".{_WEIGHT}").rpartition(".")[2] for name in names]
    return f"{stem}.{'+'.join(modules)}.{_WEIGHT}".removeprefix(".")


# --- rules

_x, _weight, _ids, _exact, _chosen = variables("x weight ids exact chosen")
_product = node(f.times_weight.op, _x, _weight)
_logits = node(f.approximate_logits.op, _product, _exact)
_embedding = node(f.embedding.op, _ids, _weight)
_routed = node(f.routed_linear.op, _x, _chosen, _weight, experts="experts")
# Where these ops have their matrix.
_MATRIX = {f.times_weight.op: 1, f.embedding.op: 1, f.routed_linear.op: 2}


def store_matrices(
    graphs: Sequence[Graph], weights: Weights, storage: Callable[[Tensor], Storage]
) -> None:
    """Store the weights of products, and those of which rows are looked up, as `storage` says.

    Raises TypeRuleError for a matrix whose shape does not allow it.
    """
    read: dict[int, Tensor] = {}
    looked_up: set[int] = set()
    for graph in graphs:
        for tensor in graph.nodes:
            origin = tensor.origin
            assert isinstance(origin, Apply)
            if origin.op is f.approximate_logits.op:
                origin = origin.inputs[0].origin
                is_table = isinstance(origin, Apply) and origin.op is f.times_weight.op
            else:
                is_table = origin.op is f.embedding.op
            if isinstance(origin, Apply) and origin.op in _MATRIX:
                weight = origin.inputs[_MATRIX[origin.op]]
                if isinstance(weight.origin, Parameter):
                    read[id(weight)] = weight
                    looked_up |= {id(weight)} if is_table else set()
    for key, weight in read.items():
        chosen = storage(weight)
        weights.store(weight, (key in looked_up and chosen.table) or chosen)


def stored_graph(
    graph: Graph, weights: Weights, activation_bits: int
) -> tuple[Graph, Counter[str]]:
    """The graph on stored matrices, and how often a rule was applied.

    Products with matrices of integers round activations to `activation_bits`, except those with
    tables, which are logits: see models/dsl/activations.py.
    """
    bits = {"activation_bits": activation_bits}

    def storage(weight: Tensor) -> Storage:
        return weights.stored(weight).storage

    def arrays(weight: Tensor) -> tuple[Tensor, ...]:
        return tuple(weights.stored(weight).parameters.values())

    def without_padding(product: Tensor, weight: Tensor) -> tuple[Tensor]:
        outputs, last = weight.shape[0], product.type.rank - 1
        padded = product.shape[last] != outputs
        return (f.narrow(product, last, 0, outputs) if padded else product,)

    rules = (
        Rule(
            name="two_part_head",
            pattern=(_logits,),
            replacement=lambda x, weight, exact: without_padding(
                storage(weight).logits(x, exact, *arrays(weight)), weight
            ),
        ),
        Rule(
            name="matrix",
            pattern=(_product,),
            replacement=lambda x, weight: without_padding(
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
    return rewritten(graph, rules, weights.parameters())
