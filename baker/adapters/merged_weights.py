"""Weights with an adapter merged into them: W + scale * B A, as a `WeightSource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.weights.source import WeightSource
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.bundle.parsing.head_rows import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.bundle.lora.adapter_folder import LowRank
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture


class MergedWeights(SourceInFront):
    """The tensors of a model, some with low-rank terms, which then are f32."""

    def __init__(
        self,
        base: WeightSource,
        terms: Mapping[str, LowRank],
        architecture: Architecture[Any],
        config: ModelConfig,
    ) -> None:
        """`terms` are by the names of the model's parameters."""
        super().__init__(base)
        self._factors: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        names, gguf = base.names(), base.format == "gguf"
        for parameter, term in terms.items():
            stored = architecture.tensors.find(config, parameter, names, gguf=gguf)
            rows = term.b.astype(np.float64) * term.scale
            if stored.interleaved:
                rows = side_by_side(rows, stored.interleaved)
            b = np.zeros((base.shape(stored.name)[0], rows.shape[1]))
            b[stored.rows(len(b))] = rows
            a = term.a.astype(np.float64)
            if stored.name in self._factors:  # several parameters are in one tensor
                other_b, other_a = self._factors[stored.name]
                b, a = np.concatenate([other_b, b], axis=1), np.concatenate([other_a, a])
            self._factors[stored.name] = (b, a)

    @override
    def dtype(self, name: str) -> str:
        """The stored type; "f32" for a tensor with a low-rank term."""
        return "f32" if name in self._factors else self._base.dtype(name)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The blocks of a tensor, each with its rows of the low-rank term added in f64."""
        if name not in self._factors:
            yield from self._base.blocks(name)
            return
        b, a = self._factors[name]
        start = 0
        for block in self._base.blocks(name):
            rows = b[start : start + len(block)]
            start += len(block)
            yield (block + rows @ a).astype(np.float32)

    @override
    def integer_storage(self, name: str) -> str | None:
        """The storage that holds the integers of a tensor without a low-rank term."""
        return None if name in self._factors else super().integer_storage(name)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The stored integers of a tensor; one with a low-rank term has none."""
        if name in self._factors:
            return WeightSource.integer_blocks(self, name)
        return self._base.integer_blocks(name)
