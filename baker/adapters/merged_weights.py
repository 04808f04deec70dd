"""Weights with an adapter merged into them: W + scale * B A, as a `WeightSource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from typing_extensions import override

from hearthd.baker.weights.source import WeightSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.bundle.lora.adapter_folder import LowRank
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture


class MergedWeights(WeightSource):
    """The tensors of a model, some with low-rank terms, which then are f32."""

    def __init__(
        self,
        base: WeightSource,
        terms: Mapping[str, LowRank],
        architecture: Architecture[Any],
        config: ModelConfig,
    ) -> None:
        """`terms` are by the names of the model's parameters."""
        self._base = base
        self._factors: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        names, gguf = base.names(), base.format == "gguf"
        for parameter, term in terms.items():
            stored = architecture.tensors.find(config, parameter, names, gguf=gguf)
            rows = term.b.astype(np.float64) * term.scale
            if stored.interleaved:
                rows = _side_by_side(rows, stored.interleaved)
            b = np.zeros((base.shape(stored.name)[0], rows.shape[1]))
            b[stored.rows(len(b))] = rows
            a = term.a.astype(np.float64)
            if stored.name in self._factors:  # several parameters are in one tensor
                other_b, other_a = self._factors[stored.name]
                b, a = np.concatenate([other_b, b], axis=1), np.concatenate([other_a, a])
            self._factors[stored.name] = (b, a)

    @property
    @override
    def format(self) -> Literal["gguf", "safetensors"]:
        """The format of the model's file."""
        return self._base.format

    @property
    @override
    def folder(self) -> Path | None:
        """The folder of the model, if it is one."""
        return self._base.folder

    @override
    def names(self) -> tuple[str, ...]:
        """The names of the model's tensors."""
        return self._base.names()

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._base.shape(name)

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
        return None if name in self._factors else self._base.integer_storage(name)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The stored integers of a tensor; one with a low-rank term has none."""
        if name in self._factors:
            return super().integer_blocks(name)
        return self._base.integer_blocks(name)

    @override
    def files(self) -> tuple[Path, ...]:
        """The files of the model, without those of the adapter."""
        return self._base.files()

    @override
    def require_unchanged(self) -> None:
        """Raise BadFile if a file of the model has changed since it was opened."""
        self._base.require_unchanged()

    @override
    def metadata(self) -> Mapping[str, object]:
        """The metadata of the model."""
        return self._base.metadata()


def _side_by_side(rows: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The inverse of `half_after_half`: rows of heads as llama.cpp has them."""
    heads = rows.reshape(-1, 2, width // 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)
