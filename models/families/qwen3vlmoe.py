"""Qwen3-VL with experts (text): Qwen3-MoE, whose positions in images have several axes.

Source: "Qwen3-VL Technical Report" (2025).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import from_config_json
from hearthd.models.decoder.experts import ExpertsConfig, experts_from_config_json
from hearthd.models.families import qwen3moe
from hearthd.models.families.qwen2vl import NAMES_BESIDE_TOWER

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json. The scores of a token's experts are normalized."""
    text = data.text_section(tied=None)
    text.fixed(norm_topk_prob=True, sliding_window=None)
    fields = experts_from_config_json(text, from_config_json(text, rope_scaling.of_text))
    return ExpertsConfig(**fields | {"normalized": True})


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    data.ignore("rope.dimension_sections", "n_deepstack_layers")
    return qwen3moe.from_gguf(data)


_MOE = qwen3moe.ARCHITECTURE.tensors
ARCHITECTURE = replace(
    qwen3moe.ARCHITECTURE,
    name="qwen3vlmoe",
    model_types=("qwen3_vl_moe", "qwen3_vl_moe_text"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    tensors=replace(
        NAMES_BESIDE_TOWER,
        gguf=_MOE.gguf,
        folder={**_MOE.folder, "mlp.experts.all_down_proj": "mlp.experts.down_proj"},
        joined={
            "mlp.experts.gate_up_proj": ("mlp.experts.gate_proj", "mlp.experts.up_proj"),
            "mlp.experts.all_down_proj": ("mlp.experts.down_proj",),
        },
        transposed=("mlp.experts.gate_up_proj", "mlp.experts.all_down_proj"),
    ),
)
