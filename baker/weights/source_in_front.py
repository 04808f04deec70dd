"""A source of weights in front of another one; a subclass replaces some methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from hearthd.baker.weights.source import WeightSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock


class SourceInFront(WeightSource):
    """The tensors, files and metadata of a base source."""

    def __init__(self, base: WeightSource) -> None:
        self._base = base

    @property
    @override
    def format(self) -> Literal["gguf", "safetensors"]:
        return self._base.format

    @property
    @override
    def folder(self) -> Path | None:
        return self._base.folder

    @override
    def names(self) -> tuple[str, ...]:
        return self._base.names()

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._base.shape(name)

    @override
    def is_flat(self, name: str) -> bool:
        return self._base.is_flat(name)

    @override
    def dtype(self, name: str) -> str:
        return self._base.dtype(name)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        return self._base.blocks(name)

    @override
    def integer_storage(self, name: str) -> str | None:
        return self._base.integer_storage(name)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        return self._base.integer_blocks(name)

    @override
    def files(self) -> tuple[Path, ...]:
        return self._base.files()

    @override
    def require_unchanged(self) -> None:
        self._base.require_unchanged()

    @override
    def metadata(self) -> Mapping[str, object]:
        return self._base.metadata()
