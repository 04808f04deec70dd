"""Spark-X2.5: Llama with windows in most layers, a gate for each head, and GELU.

Source: modeling_spark2_5.py of Spark-X2.5-1.7B (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import windows_by_type
from hearthd.models.decoder.layers import MLP, Block
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames
from hearthd.models.decoder.two_ropes import (
    TwoRopesConfig,
    TwoRopesModel,
    two_ropes_fields,
    two_ropes_from_gguf,
)
from hearthd.models.dsl import functions as f
from hearthd.models.families.lfm3 import HeadGatedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class Spark(TwoRopesModel):
    """Blocks with gated heads."""

    def __init__(self, config: TwoRopesConfig) -> None:
        blocks = [
            Block(config, HeadGatedAttention(config), MLP(config, f.gelu))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> TwoRopesConfig:
    """Read config.json."""
    data.fixed(headwise_attn_output_gate=True, gate_attn_act_mode="sigmoid")
    data.fixed(attention_bias=False)
    fields = two_ropes_fields(data, activation="gelu")
    return TwoRopesConfig(**fields, windows=windows_by_type(data, [False] * fields["layers"]))


def from_gguf(data: GgufMetadata) -> TwoRopesConfig:
    """Read GGUF metadata."""
    fields = two_ropes_from_gguf(data)
    return TwoRopesConfig(**fields, windows=data.windows_by_layer(fields["layers"]))


ARCHITECTURE = Architecture(
    name="spark2_5",
    config=TwoRopesConfig,
    model_types=("spark2_5",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Spark,
    tensors=TensorNames(
        folder={
            "self_attn.gate_proj": "self_attn.g_proj",
            "self_attn.o_proj": "self_attn.out_proj",
        },
        grouped=(replace(JOINED_HEADS, folder="self_attn.q_k_v_proj"),),
    ),
)
