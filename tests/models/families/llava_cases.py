"""Tiny models of the families of LLaVA: see image_cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Heads of 12 columns, for three pairs of each axis; three layers, for llama.cpp's converter.
PIXTRAL_TOWER: Mapping[str, Any] = {
    "image_token_index": 96, "spatial_merge_size": 2,
    "vision_config": {
        "model_type": "pixtral", "hidden_size": 36, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 3, "head_dim": 12, "patch_size": 5,
        "hidden_act": "silu",
    },
}  # fmt: skip
# Two patches in a row; three layers, the last of which is not read.
CLIP_TOWER: Mapping[str, Any] = {
    "image_token_index": 96, "image_seq_length": 4,
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 10, "patch_size": 5,
        "layer_norm_eps": 1e-4,
    },
}  # fmt: skip
# One tile, whose size is that of the square that precedes it.
NEXT_TOWER: Mapping[str, Any] = {**CLIP_TOWER, "image_grid_pinpoints": [[10, 10]]}
LLAVA_PIXTRAL: Mapping[str, Any] = {
    "image_token_index": 96, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    "vision_config": PIXTRAL_TOWER["vision_config"],
}  # fmt: skip
# The last pixels of an image are in no patch. Two of three layers are read. `llava_next` of
# transformers leaves out the scaling of logits, which GraniteForCausalLM has.
GRANITE_TOWER: Mapping[str, Any] = {
    "image_token_index": 96, "vision_feature_layer": [-3, -1], "tie_word_embeddings": True,
    "vision_feature_select_strategy": "full", "image_grid_pinpoints": [[12, 12]],
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 12, "patch_size": 5,
        "layer_norm_eps": 1e-4,
    },
}  # fmt: skip
LLAVA_CASES: Sequence[tuple[str, str, Mapping[str, Any], Mapping[str, Mapping[str, Any]]]] = (
    ("llava", "LlavaConfig", CLIP_TOWER, {"llava": {"model_type": "llama"}}),
    (
        "pixtral", "LlavaConfig", LLAVA_PIXTRAL,
        {"pixtral": {"model_type": "mistral", "rope_parameters": DEFAULT | {"rope_theta": 1e9}}},
    ),
    (
        "llava-next", "LlavaNextConfig", NEXT_TOWER,
        {
            "mistral": {
                "model_type": "mistral", "sliding_window": None,
                "rope_parameters": DEFAULT | {"rope_theta": 1e6},
            },
        },
    ),
    (
        "granite-vision", "LlavaNextConfig", GRANITE_TOWER,
        {
            "granite": {
                "model_type": "granite", "embedding_multiplier": 12.0, "attention_multiplier": 0.2,
                "residual_multiplier": 0.22, "tie_word_embeddings": True,
            },
        },
    ),
)  # fmt: skip
