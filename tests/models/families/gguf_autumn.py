"""Write tensors of models of 2024 to 2026 as llama.cpp's converter does."""

from __future__ import annotations

import re
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


def hrm_text(name: str, values: Array, config: Any) -> Iterator[tuple[str, Array]]:
    """A tensor of HRM-Text: the layers of the slow stack follow those of the fast one."""
    if name.endswith("z_L_init"):
        yield "hrm.z_l_init", values
        return
    stack = re.match(r"model\.([LH])_module\.layers\.(\d+)", name)
    if stack is not None:
        number = int(stack[2]) + config.stack_layers * (stack[1] == "H")
        name = name.replace(stack[0], f"model.layers.{number}").replace(".attn.", ".self_attn.")
    joined = {"gqkv": ("gate", "q", "k", "v"), "gate_up": ("gate", "up")}
    for old, parts in joined.items():
        if f".{old}_proj" in name:
            for part, rows in zip(parts, np.split(values, len(parts)), strict=True):
                yield name.replace(f".{old}_proj", f".{part}_proj"), rows
            return
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
    "hrm_text": hrm_text,
    "maple": maple,
    "muse-glimmer": muse,
}
