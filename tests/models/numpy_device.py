"""A program with random weights that is called as a bundle's entry points are, in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.bundle import padding_of
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused.two_part_head import ALL
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.dsl.types import TensorType
    from hearthd.models.program import Program

    Array = NDArray[Any]


def random_weights(program: Program) -> dict[str, Array]:
    """Rows of matrices of length 1; norms near 1, as they are after 1 + w; rates below 0."""
    return random_arrays(program.parameters, program.hidden)


def random_arrays(parameters: Mapping[str, TensorType], hidden: int) -> dict[str, Array]:
    """The same for parameters of these types, of a model with this hidden width."""
    rng = np.random.default_rng(7)
    weights: dict[str, Array] = {}
    for name, tensor_type in parameters.items():
        values = rng.normal(size=tensor_type.shape)
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * values
        elif name.endswith("rates.weight"):
            values = -np.abs(values)
        elif tensor_type.dtype is DType.I8:
            values = values * 30
        else:
            values = values / np.sqrt(tensor_type.shape[-1])
        if name.endswith(".scale"):
            values = np.abs(rng.normal(size=tensor_type.shape)) / (30 * np.sqrt(hidden)) + 1e-3
        weights[name] = values.astype(tensor_type.dtype.numpy)
    return weights


def model_weights(weights: Iterable[Weight], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """A model's weights by the names of its parameters, from arrays of f32 or bf16 storage."""
    return {
        name: arrays[stored][rows.start : rows.stop]
        for weight in weights
        for stored in weight.parameters
        for name, rows in weight.rows().items()
    }


class Device:
    """Calls a program's entry points as bundle.py describes them, in NumPy."""

    def __init__(self, program: Program, padding: int | None = None) -> None:
        """`padding` is another token for it than the usual one."""
        self.program = program
        self.weights = random_weights(program)
        self.padding = padding_of(program.caches) if padding is None else padding

    def model_weights(self) -> dict[str, Array]:
        """The weights by the model's own names, if each is stored as one array."""
        return model_weights(self.program.weights, self.weights)

    def slot(self) -> list[Array]:
        """The caches of a new sequence."""
        return empty_caches(self.program.caches)

    def prefill(self, caches: list[Array], tokens: Sequence[int], start: int) -> list[Array]:
        """The caches after one chunk, by the smallest entry point that fits."""
        end = start + len(tokens)
        point = min(
            (
                point
                for point, _ in self.program.entry_points
                if point.kind == "prefill" and point.tokens >= len(tokens) and point.keys >= end
            ),
            key=lambda point: (point.tokens, point.keys),
        )
        return self.call(point.name, [self._padded(tokens, point.tokens), [start]], caches)

    def embed(
        self, caches: list[Array], tokens: Sequence[int], start: int
    ) -> tuple[Array, list[Array]]:
        """The sum of the hidden states (E,), and the caches after one chunk."""
        size = max(point.tokens for point, _ in self.program.entry_points)
        numbers = [self._padded(tokens, size), [start], [len(tokens)]]
        total, *updated = self.call(f"embed_{size}", numbers, caches)
        return total, updated

    def decode(
        self, slots: list[list[Array]], tokens: Sequence[int], positions: Sequence[int]
    ) -> tuple[Array, list[list[Array]]]:
        """Logits (B, V) and the caches of each slot after one token each."""
        flat = [cache for caches in slots for cache in caches]
        margins = [ALL] * len(slots)
        logits, *updated = self.call(f"decode_{len(slots)}", [tokens, positions, margins], flat)
        cache_count = len(self.program.caches)
        return logits, [updated[i * cache_count : (i + 1) * cache_count] for i in range(len(slots))]

    def verify(
        self, caches: list[Array], tokens: Sequence[int], start: int
    ) -> tuple[Array, list[Array]]:
        """Logits (T, V) after each token, and the caches: there is an entry point of this size."""
        logits, *updated = self.call(f"verify_{len(tokens)}", [tokens, [start], [ALL]], caches)
        return logits, updated

    def verify_pair(
        self, slots: list[list[Array]], tokens: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> tuple[Array, list[list[Array]]]:
        """Logits (2 T, V) after each token of two slots, and the caches of each."""
        flat = [cache for caches in slots for cache in caches]
        numbers = [[token for read in tokens for token in read], starts, [ALL] * 2]
        logits, *updated = self.call(f"verify_2x{len(tokens[0])}", numbers, flat)
        cache_count = len(self.program.caches)
        return logits, [updated[:cache_count], updated[cache_count:]]

    def logits_after(
        self, tokens: Sequence[int], sizes: Sequence[int] = (8,), caches: list[Array] | None = None
    ) -> Array:
        """Read all but the last token in chunks of these sizes in turn, decode the last: (V,)."""
        caches, at, turn = caches or self.slot(), 0, 0
        while at < len(tokens) - 1:
            chunk = tokens[at : min(at + sizes[turn % len(sizes)], len(tokens) - 1)]
            caches = self.prefill(caches, chunk, at)
            at, turn = at + len(chunk), turn + 1
        logits, _ = self.decode([caches], tokens[-1:], [at])
        return np.asarray(logits[0])

    def decoded(self, tokens: Sequence[int]) -> Array:
        """The logits (T, V) after each of the tokens, one decode after the other."""
        caches, rows = self.slot(), []
        for position, token in enumerate(tokens):
            logits, (caches,) = self.decode([caches], [token], [position])
            rows.append(logits[0])
        return np.array(rows)

    def _padded(self, tokens: Sequence[int], size: int) -> list[int]:
        return [*tokens, *[self.padding] * (size - len(tokens))]

    def call(self, name: str, numbers: Sequence[Sequence[int]], caches: list[Array]) -> list[Array]:
        ((_, graph),) = [pair for pair in self.program.entry_points if pair[0].name == name]
        arguments = [np.array(values, np.int32) for values in numbers]
        return evaluate(graph, [*arguments, *caches], self.weights)
