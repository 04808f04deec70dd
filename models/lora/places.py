"""Places for LoRA adapters in a program: the rule that has a graph compute their low-rank terms.

Products with matrices of layers become y + scale * B A x, where each sequence names the place of A
and B, or none. The factors of all places are inputs, which a server fills while it runs. Matrices
that read the same rows share one array of A. It runs before matrices are stored, so the terms are
added to whatever a storage makes of the product.

See models/dsl/fused/adapter_products.py for the letters in shapes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.bundle import AdapterArray, AdapterMatrix, AdapterPlaces
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.fused.adapter_products import (
    LANES,
    MAX_SMALL_RANK,
    TERMS,
    adapter_blocks,
    lora_down,
    lora_up,
)
from hearthd.models.dsl.graph import Apply, Graph, Input, Parameter, Tensor, rebuilt
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hearthd.bundle import AdapterDType, EntryPoint
    from hearthd.models.dsl.rewrites.stored_weights import Weights
    from hearthd.models.program import ProgramOptions

# Only matrices of layers have places: tables and output heads do not.
_LAYERS = "layers."


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places for adapters in a program.

    count      P
    rank       R, the largest rank of an adapter; for factors i8 a multiple of 4, at most 64
    dtype      of the factors
    sequences  by the name of a graph with places, the sequences that its rows are of
    """

    count: int
    rank: int
    dtype: AdapterDType
    sequences: Mapping[str, int]


@dataclass(frozen=True)
class _Factors:
    """Where the factors of a product are: A and B by index of the arrays, and the first source."""

    down: int
    up: int
    first: int


@dataclass(eq=False)
class PlaceRewriter:
    """Adds the terms to graphs that share their weights; finds the arrays in the first pass.

    graphs  those that get places
    """

    weights: Weights
    places: Places
    graphs: Sequence[Graph]
    _arrays: list[AdapterArray] = field(default_factory=list)
    _matrices: list[AdapterMatrix] = field(default_factory=list)
    _factors: dict[int, _Factors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = {group for graph in self.graphs for group in self._products(graph)}
        order = {id(tensor): i for i, tensor in enumerate(self.weights.named.values())}

        def place(group: tuple[Tensor, ...]) -> tuple[int, int]:
            first = next(iter(self.weights.stored(group[0]).sources))
            return -len(group), order[id(self.weights.named[first])]

        for group in sorted(groups, key=place):
            if rest := [matrix for matrix in group if id(matrix) not in self._factors]:
                self._add(rest)

    def rewritten(self, graph: Graph) -> Graph:
        """The graph, with more inputs if it has places: places, scales, and the factors."""
        if graph.name not in self.places.sequences:
            return graph
        sequences = self.places.sequences[graph.name]
        chosen = _input("adapters", TensorType((sequences,), DType.I32))
        scales = _input("scales", TensorType((sequences,), DType.F32))
        arrays = [_input(array.name, _type(array)) for array in self._arrays]
        terms: dict[tuple[int, int], Tensor] = {}

        def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
            matrix = self._matrix(node)
            if matrix is None:
                return None
            x, factors = mapped(node.inputs[0]), self._factors[id(matrix)]
            key = (id(x), factors.down)
            if key not in terms:
                terms[key] = lora_down(x, chosen, arrays[factors.down])
            return lora_up(
                f.times_weight(x, matrix), terms[key], chosen, scales,
                *arrays[factors.up : factors.up + 1 + self._has_scales],
                sources=tuple(shape[0] for shape in self.weights.stored(matrix).sources.values()),
                first=factors.first,
            )  # fmt: skip

        inputs = (*graph.inputs, chosen, scales, *arrays)
        extended = dataclasses.replace(graph, inputs=inputs)
        return rebuilt(extended, replace, self.weights.parameters())

    def result(self) -> AdapterPlaces:
        """The record of the places in a bundle's manifest."""
        return AdapterPlaces(
            count=self.places.count,
            rank=self.places.rank,
            arrays=tuple(self._arrays),
            matrices=tuple(self._matrices),
        )

    def _products(self, graph: Graph) -> Iterator[tuple[Tensor, ...]]:
        """The matrices of layers that a graph multiplies the same rows with."""
        groups: dict[int, dict[int, Tensor]] = {}
        for node in graph.nodes:
            matrix = self._matrix(node)
            if matrix is not None:
                groups.setdefault(id(node.inputs[0]), {})[id(matrix)] = matrix
        return (tuple(group.values()) for group in groups.values())

    def _matrix(self, node: Tensor) -> Tensor | None:
        """The matrix of a layer that a node multiplies with."""
        origin = node.origin
        if not (isinstance(origin, Apply) and origin.op is f.times_weight.op):
            return None
        matrix = node.inputs[1]
        if not isinstance(matrix.origin, Parameter):
            return None
        sources = self.weights.stored(matrix).sources
        return matrix if all(name.startswith(_LAYERS) for name in sources) else None

    def _add(self, group: Sequence[Tensor]) -> None:
        """Arrays for the matrices that read the same rows."""
        down, columns, first = len(self._arrays), group[0].shape[1], 0
        rank, count = self.places.rank, self.places.count
        sources = [self.weights.stored(matrix).sources for matrix in group]
        terms = rank * sum(map(len, sources))
        self._append(next(iter(sources[0])), "lora_A", (count, terms, columns), self.places.dtype)
        for matrix, rows in zip(group, sources, strict=True):
            up, block = len(self._arrays), 0
            self._factors[id(matrix)] = _Factors(down=down, up=up, first=first)
            for name, shape in rows.items():
                self._matrices.append(
                    AdapterMatrix(
                        module=name.removesuffix(".weight"), rows=shape[0], columns=columns,
                        down=down, first_term=first * rank, up=up, first_block=block,
                    )
                )  # fmt: skip
                block += adapter_blocks(shape[0])
                first += 1
            name, together = next(iter(rows)), TERMS if self._has_scales else 1
            shape = (count, block, rank // together, LANES * together)
            self._append(name, "lora_B", shape, self.places.dtype)
            if self._has_scales:
                self._append(name, "lora_B_scale", (count, block, LANES), "f16")

    @property
    def _has_scales(self) -> bool:
        """Whether an array of scales follows each array of B."""
        return self.places.dtype == "i8"

    def _append(
        self, parameter: str, factor: str, shape: tuple[int, ...], dtype: AdapterDType
    ) -> None:
        name = f"{parameter.removesuffix('.weight')}.{factor}"
        self._arrays.append(AdapterArray(name=name, shape=shape, dtype=dtype))


def _input(name: str, tensor_type: TensorType) -> Tensor:
    return Tensor(tensor_type, Input(name))


def _type(array: AdapterArray) -> TensorType:
    return TensorType(array.shape, DType.named(array.dtype))


def places_of(options: ProgramOptions, points: Sequence[EntryPoint]) -> Places | None:
    """The places for LoRA adapters, if there are any."""
    if not options.adapters:
        return None
    rank, dtype = options.adapter_rank, PRECISIONS[options.precision].adapters
    if dtype == "i8" and rank > MAX_SMALL_RANK:
        dtype = "f16"
    if dtype == "i8":
        rank = -(-rank // TERMS) * TERMS
    return Places(
        count=options.adapters,
        rank=rank,
        dtype=dtype,
        sequences={point.name: point.batch for point in points if point.adapters},
    )
