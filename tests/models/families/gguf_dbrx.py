"""Write tensors of DBRX as llama.cpp's converter does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.models.families.dbrx import Config

    Array = NDArray[Any]


def dbrx(name: str, values: Array, config: Config) -> Iterator[tuple[str, Array]]:
    """A tensor; those of experts become a matrix of each."""
    if ".experts." in name:
        values = values.reshape(config.experts, config.expert_ffn, config.hidden)
        values = np.ascontiguousarray(values.swapaxes(1, 2)) if name.endswith("w2") else values
        name = f"{name}.weight"
    yield name, values
