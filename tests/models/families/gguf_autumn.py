"""Write tensors of models of 2024 to 2026 as llama.cpp's converter does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.gguf_latent import ling3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]


def dbrx(name: str, values: Array, config: Any) -> Iterator[tuple[str, Array]]:
    """A tensor of DBRX; those of experts become a matrix of each."""
    if ".experts." in name:
        values = values.reshape(config.experts, config.expert_ffn, config.hidden)
        values = np.ascontiguousarray(values.swapaxes(1, 2)) if name.endswith("w2") else values
        name = f"{name}.weight"
    yield name, values


def maple(name: str, values: Array, _: Any) -> Iterator[tuple[str, Array]]:
    """A tensor of Maple."""
    yield name.replace("word_embeddings", "embed_tokens"), values


def muse(name: str, values: Array, config: Any) -> Iterator[tuple[str, Array]]:
    """A tensor of Muse Glimmer, and beside queries the norms that scale heads."""
    if name.endswith("layernorm.weight"):
        values = values + np.float32(1)
    if name.endswith("q_proj.weight"):
        factor = config.query_scale * config.head_dim**0.5
        for part, number in (("q", factor), ("k", 1.0)):
            numbers = np.full(config.head_dim, number, np.float32)
            yield name.replace("q_proj", f"{part}_norm"), numbers
    yield name, values


# What the converter makes of a tensor, by architecture, for a configuration.
CONVERTED: Mapping[str, Callable[[str, Array, Any], Iterator[tuple[str, Array]]]] = {
    "bailingmoe3": ling3,
    "dbrx": dbrx,
    "maple": maple,
    "muse-glimmer": muse,
}
