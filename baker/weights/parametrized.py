"""A Hugging Face folder whose tensors have the adapters of tasks: jina-embeddings-v3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.baker.weights.source_in_front import SourceInFront

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource

# PyTorch's names for a matrix that is computed from others, with the terms of LoRA.
_ORIGINAL = ".parametrizations.weight.original"
_TERMS = re.compile(r"\.parametrizations\.weight\.0\.lora_[AB]$")


class WithoutAdapters(SourceInFront):
    """The tensors without the terms of adapters, each under the name of its module."""

    def __init__(self, base: WeightSource) -> None:
        super().__init__(base)
        names = (name for name in base.names() if not _TERMS.search(name))
        self._stored = {name.replace(_ORIGINAL, ".weight"): name for name in names}

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(self._stored)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return super().shape(self._stored.get(name, name))

    @override
    def dtype(self, name: str) -> str:
        return super().dtype(self._stored.get(name, name))

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        return super().blocks(self._stored.get(name, name))


def has_adapters(source: WeightSource) -> bool:
    """Whether the tensors of a folder have terms of adapters."""
    return any(map(_TERMS.search, source.names()))
