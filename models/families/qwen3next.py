"""Qwen3-Next: Qwen3.5 with experts, whose projections of a delta net are in groups in files.

Source: the model `qwen3_next` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.tensor_names import GroupedRows
from hearthd.models.families import qwen35moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.families.qwen35moe import Config


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata; value heads keep their order here."""
    return qwen35moe.Config(**qwen35moe.fields_from_gguf(data) | {"takes_turns": False})


def _inputs(config: Config) -> tuple[int, tuple[int, ...]]:
    """Key heads, and the rows of one: its query, its key, its values and their gates."""
    values = config.value_heads // config.key_heads * config.value_width
    return config.key_heads, (config.key_width, config.key_width, values, values)


def _rates(config: Config) -> tuple[int, tuple[int, ...]]:
    """Key heads, and the rows of one: two for each of its value heads."""
    return config.key_heads, (config.value_heads // config.key_heads,) * 2


_QKV, _MIXER = "self_attn.in_proj_qkv", "linear_attn"
ARCHITECTURE = replace(
    qwen35moe.ARCHITECTURE,
    name="qwen3next",
    model_types=("qwen3_next",),
    read_gguf=from_gguf,
    tensors=replace(
        qwen35moe.ARCHITECTURE.tensors,
        grouped=(
            GroupedRows(
                folder=f"{_MIXER}.in_proj_qkvz",
                gguf="ssm_in",
                parts=(_QKV, _QKV, _QKV, "self_attn.in_proj_z"),
                shape=_inputs,
            ),
            GroupedRows(
                folder=f"{_MIXER}.in_proj_ba",
                gguf="ssm_ba",
                parts=("self_attn.in_proj_b", "self_attn.in_proj_a"),
                shape=_rates,
            ),
        ),
    ),
)
