"""Ling 1 and 1.5: the layers of DeepSeekMoE under other names.

Source: "Every FLOP Counts" (2025) and modeling_bailing_moe.py of Ling-lite.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.config.decoder_config import from_config_json
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, ExpertsConfig
from hearthd.models.decoder.tensor_names import JOINED_HEADS
from hearthd.models.dsl.functions.routing import SOFTMAX
from hearthd.models.families import deepseek
from hearthd.models.families.deepseek import shared_experts

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json; Ling 2.0 has the same `model_type` and another router."""
    scores = data.text("score_function", default=SOFTMAX)
    if scores != SOFTMAX:
        raise OtherFamily(f"config.json: score_function: got {scores!r:.80}, supported: {SOFTMAX}")
    data.fixed(norm_head=False, use_bias=False, use_qkv_bias=False, use_sliding_window=False)
    data.fixed(multi_gate=False, num_nextn_predict_layers=0)
    data.ignore(
        "embedding_dropout", "max_window_layers", "norm_softmax", "output_dropout",
        "output_router_logits", "sliding_window",
    )  # fmt: skip
    return ExpertsConfig(**shared_experts(data, from_config_json(data)))


ARCHITECTURE = replace(
    deepseek.ARCHITECTURE,
    name="bailingmoe",
    model_types=("bailing_moe",),
    read_config_json=from_hugging_face,
    tensors=replace(
        deepseek.ARCHITECTURE.tensors,
        folder={
            **EXPERT_FOLDER_NAMES,
            "embed_tokens": "word_embeddings",
            "self_attn.o_proj": "attention.dense",
        },
        grouped=(replace(JOINED_HEADS, folder="attention.query_key_value"),),
    ),
)
