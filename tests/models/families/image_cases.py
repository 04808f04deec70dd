"""Tiny models that read images: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import (
    CORRECTED,
    DEFAULT,
    EXPERTS,
    GEMMA4,
    LONGROPE,
    MINISTRAL_ROPE,
)
from tests.models.families.llava_cases import LLAVA_CASES, PIXTRAL_TOWER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Six patches in a row; squares of nine give a row of embeddings.
SMOLVLM_TOWER: Mapping[str, Any] = {
    "scale_factor": 3, "image_token_id": 96,
    "vision_config": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "patch_size": 5,
        "num_attention_heads": 3, "image_size": 30,
    },
}  # fmt: skip
# The same, with the mean of each square.
GEMMA3_TOWER: Mapping[str, Any] = {
    "mm_tokens_per_image": 4,
    "image_token_index": 96,
    "vision_config": {**SMOLVLM_TOWER["vision_config"], "vision_use_head": False},
}
# Images of patches of 5 x 5 pixels, and a table of 7 x 7 positions.
QWEN_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "video_token_id": 95, "vision_start_token_id": 93,
    "vision_end_token_id": 94,
    "vision_config": {
        "depth": 2, "hidden_size": 24, "intermediate_size": 40, "num_heads": 3, "patch_size": 5,
        "out_hidden_size": 48, "num_position_embeddings": 49,
    },
}  # fmt: skip
# The text model adds the hidden states after the first and the last of three layers.
QWEN3_TOWER: Mapping[str, Any] = {
    **QWEN_TOWER,
    "vision_config": {
        **QWEN_TOWER["vision_config"], "depth": 3, "deepstack_visual_indexes": [0, 2],
    },
}  # fmt: skip
# Windows of 4 x 4 squares, as GGUF files have them, in the first two of three layers.
QWEN25_TOWER: Mapping[str, Any] = {
    **QWEN_TOWER,
    "vision_config": {
        "depth": 3, "hidden_size": 24, "intermediate_size": 40, "num_heads": 3, "patch_size": 14,
        "out_hidden_size": 48, "window_size": 112, "fullatt_block_indexes": [2],
    },
}  # fmt: skip
QWEN2_TOWER: Mapping[str, Any] = {
    **QWEN_TOWER,
    "vision_config": {
        "depth": 3, "embed_dim": 24, "hidden_size": 48, "mlp_ratio": 2, "num_heads": 3,
        "patch_size": 5,
    },
}  # fmt: skip
# A table of 7 x 7 positions.
GLM_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "image_start_token_id": 93, "image_end_token_id": 94,
    "video_token_id": 95, "tie_word_embeddings": False,
    "vision_config": {
        "depth": 2, "hidden_size": 24, "num_heads": 3, "patch_size": 5, "image_size": 35,
        "out_hidden_size": 48, "intermediate_size": 40, "rms_norm_eps": 1e-4,
    },
}  # fmt: skip
# A table of 7 x 7 positions; three layers, for llama.cpp's converter.
PADDLE_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "video_token_id": 95, "vision_start_token_id": 93,
    "vision_end_token_id": 94,
    "vision_config": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 3, "image_size": 35, "patch_size": 5,
    },
}  # fmt: skip
PADDLE_TEXT = {
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16,
    "rope_parameters": DEFAULT | {"mrope_section": [2, 3, 3]},
}  # fmt: skip
GLM_OCR_TOWER: Mapping[str, Any] = {
    **{key: value for key, value in GLM_TOWER.items() if key != "vision_config"},
    "vision_config": GLM_TOWER["vision_config"] | {"attention_bias": True, "rms_norm_eps": 0.01},
}
GLM_TEXT = {
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16,
    "rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
}  # fmt: skip
# Four patches in a row; squares of four give a row of embeddings. Four layers, for the converter.
INTERN_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "downsample_ratio": 0.5, "image_seq_length": 4,
    "vision_config": {
        **SMOLVLM_TOWER["vision_config"], "num_hidden_layers": 4, "image_size": 20,
        "layer_norm_eps": 1e-5,
    },
}  # fmt: skip
# A table of 7 x 7 positions; four rows for each part of an image.
MINICPM_TOWER: Mapping[str, Any] = {
    "query_num": 4, "image_size": 20, "patch_size": 5,
    "slice_config": {"max_slice_nums": 9, "patch_size": 5, "model_type": "minicpmv"},
    "batch_vision_input": True, "drop_vision_last_layer": False, "slice_mode": True,
    "vision_config": {
        "model_type": "siglip", "hidden_size": 24, "intermediate_size": 40, "image_size": 35,
        "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 5,
    },
}  # fmt: skip
# Patches of 16 x 16 pixels and three layers, for llama.cpp's converter; 5 x 5 positions.
LFM2_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "downsample_factor": 2, "projector_hidden_size": 40,
    "vision_config": {
        "model_type": "siglip2_vision_model", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 16, "num_patches": 25,
        "vision_use_head": False,
    },
}  # fmt: skip
LFM2_IMAGES = {
    "model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"],
    "block_multiple_of": 8, "norm_eps": 1e-5,
}  # fmt: skip
# Nine patches give a row of embeddings; two tables of 840 positions, for images of 280 rows.
GEMMA4_TOWER: Mapping[str, Any] = {
    "image_token_id": 96,
    "vision_config": {
        "model_type": "gemma4_vision", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 8,
        "patch_size": 5, "pooling_kernel_size": 3, "position_embedding_size": 840,
        "use_clipped_linears": True,
    },
}  # fmt: skip
GEMMA4_STANDARDIZED: Mapping[str, Any] = {
    **GEMMA4_TOWER,
    "vision_config": {
        **GEMMA4_TOWER["vision_config"],
        "use_clipped_linears": False,
        "standardize": True,
    },
}
# And of sound, with spectrograms of 16 bands.
GEMMA4_TOWERS: Mapping[str, Any] = {
    **GEMMA4_TOWER, "audio_token_id": 57,
    "audio_config": {
        "model_type": "gemma4_audio", "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "subsampling_conv_channels": [16, 8], "output_proj_dims": 12,
    },
}  # fmt: skip
GEMMA4_IMAGES = {
    **GEMMA4, "num_hidden_layers": 4, "num_kv_shared_layers": 2, "head_dim": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 9,
}  # fmt: skip
# As in the larger models: no embeddings for layers, and rows of images that see each other in
# layers with a window, which an image of 15 rows exceeds.
GEMMA4_BLOCKS = GEMMA4_IMAGES | {
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "num_key_value_heads": 2,
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "final_logit_softcapping": 30.0,
    "use_bidirectional_attention": "vision",
}  # fmt: skip
# Squares of 15 x 15 pixels, and 840 positions on each side; frames of 20 samples.
GEMMA4_SQUARES: Mapping[str, Any] = {
    "image_token_id": 96, "audio_token_id": 57,
    "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": 20},
    "vision_config": {
        "model_type": "gemma4_unified_vision", "patch_size": 5, "pooling_kernel_size": 3,
        "mm_embed_dim": 40, "mm_posemb_size": 840, "output_proj_dims": 40,
    },
}  # fmt: skip
GEMMA4_UNIFIED = {
    key: value for key, value in GEMMA4_BLOCKS.items() if key != "hidden_size_per_layer_input"
}
# Of sound alone: two seconds, 200 frames of 16 bands, give 100 states. Three layers, for
# llama.cpp's converter.
_WHISPER = {
    "num_mel_bins": 16, "hidden_size": 24, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 3, "max_source_positions": 100,
}  # fmt: skip
VOXTRAL: Mapping[str, Any] = {
    "audio_token_id": 57, "audio_config": {"model_type": "voxtral_encoder", **_WHISPER},
}  # fmt: skip
QWEN2_AUDIO: Mapping[str, Any] = {
    "audio_token_index": 57,
    "audio_config": {"model_type": "qwen2_audio_encoder", **_WHISPER},
}
# Windows of 200 frames, as published, beside the tower of Qwen2.5-VL.
QWEN25_OMNI: Mapping[str, Any] = {
    "image_token_index": 96, "video_token_index": 95, "vision_start_token_id": 93,
    "vision_end_token_id": 94, "audio_token_index": 57, "audio_start_token_id": 91,
    "audio_end_token_id": 92, "vision_config": QWEN25_TOWER["vision_config"],
    "audio_config": {
        "num_mel_bins": 16, "d_model": 24, "encoder_ffn_dim": 40, "encoder_layers": 3,
        "encoder_attention_heads": 3, "n_window": 100, "output_dim": 48,
    },
}  # fmt: skip
# Three states give a row: the last row of a window has one of them.
ULTRAVOX: Mapping[str, Any] = {
    "stack_factor": 3, "hidden_size": 44, "projector_ln_mid": True,
    "audio_config": {
        "model_type": "whisper", "num_mel_bins": 16, "d_model": 24, "encoder_ffn_dim": 40,
        "encoder_layers": 3, "encoder_attention_heads": 3, "max_source_positions": 100,
    },
    "text_config": {"model_type": "llama", "rope_parameters": DEFAULT, "hidden_act": "silu"},
}  # fmt: skip
QWEN_IMAGES = {
    "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 10, "linear_value_head_dim": 16, "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": DEFAULT | {
        "partial_rotary_factor": 0.75, "mrope_section": [2, 2, 2], "mrope_interleaved": True,
    },
}  # fmt: skip
QWEN3_IMAGES = {
    "tie_word_embeddings": False,
    "rope_parameters": DEFAULT | {"mrope_section": [2, 3, 1], "mrope_interleaved": True},
}
QWEN_EXPERTS = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 28,
    "shared_expert_intermediate_size": 36,
}  # fmt: skip

# By the configuration's class, tensors that published files have transposed.
TRANSPOSED = {"Qwen3VLMoeConfig": ("experts.gate_up_proj", "experts.down_proj")}
# Each row: the architecture, the configuration's class in transformers, its arguments beside those
# of the text model, and those by case.
IMAGE_CASES: Sequence[tuple[str, str, Mapping[str, Any], Mapping[str, Mapping[str, Any]]]] = (
    (
        "smolvlm", "Idefics3Config", {**SMOLVLM_TOWER, "tie_word_embeddings": False},
        {"idefics3": {"model_type": "llama"}},
    ),
    (
        "smolvlm", "Idefics3Config", {**SMOLVLM_TOWER, "tie_word_embeddings": True},
        {
            "tied": {
                "model_type": "llama",
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
            }
        },
    ),
    (
        "internvl", "InternVLConfig", {**INTERN_TOWER, "tie_word_embeddings": False},
        {"internvl": {"model_type": "qwen2"}},
    ),
    (
        "internvl35", "InternVLConfig",
        {
            **INTERN_TOWER, "tie_word_embeddings": True,
            "vision_config": {**INTERN_TOWER["vision_config"], "attention_bias": True},
        },
        {"biases": {"model_type": "qwen3", "tie_word_embeddings": True}},
    ),
    (
        "gemma3-images", "Gemma3Config", GEMMA3_TOWER,
        {
            "window": {
                "sliding_window": 9, "query_pre_attn_scalar": 12, "num_hidden_layers": 4,
                "sliding_window_pattern": 2,
            }
        },
    ),
    (
        "qwen25vl-images", "Qwen2_5_VLConfig", QWEN25_TOWER,
        {
            "mrope": {
                "rope_parameters": DEFAULT | {"mrope_section": [1, 3, 2]},
                "tie_word_embeddings": True,
            },
        },
    ),
    (
        "qwen2vl-images", "Qwen2VLConfig", QWEN2_TOWER,
        {
            "mrope": {
                "rope_parameters": DEFAULT | {"mrope_section": [1, 3, 2]},
                "tie_word_embeddings": True,
            },
        },
    ),
    (
        "qwen25omni", "Qwen2_5OmniThinkerConfig", QWEN25_OMNI,
        {
            "thinker": {
                "rope_parameters": DEFAULT | {"mrope_section": [1, 3, 2]},
                "tie_word_embeddings": False,
            },
        },
    ),
    ("qwen3vl-images", "Qwen3VLConfig", QWEN3_TOWER, {"deepstack": QWEN3_IMAGES}),
    (
        "qwen3vlmoe-images", "Qwen3VLMoeConfig", QWEN3_TOWER,
        {"deepstack": {**QWEN3_IMAGES, **EXPERTS, "num_hidden_layers": 2}},
    ),
    ("qwen35-images", "Qwen3_5Config", QWEN_TOWER, {"mrope": QWEN_IMAGES}),
    (
        "qwen35moe-images", "Qwen3_5MoeConfig", QWEN_TOWER,
        {"mrope": QWEN_IMAGES | QWEN_EXPERTS},
    ),
    ("gemma4-images", "Gemma4Config", GEMMA4_TOWER, {"clips": GEMMA4_IMAGES}),
    (
        "gemma4-images", "Gemma4Config", GEMMA4_STANDARDIZED,
        {"blocks": GEMMA4_BLOCKS, "standardized": GEMMA4_IMAGES | {"num_kv_shared_layers": 0}},
    ),
    (
        "gemma4-moe-images", "Gemma4Config", GEMMA4_STANDARDIZED,
        {
            "blocks": GEMMA4_BLOCKS | {
                "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2,
                "moe_intermediate_size": 20,
            },
        },
    ),
    ("gemma4-unified", "Gemma4UnifiedConfig", GEMMA4_SQUARES, {"blocks": GEMMA4_UNIFIED}),
    ("gemma4-sound", "Gemma4Config", GEMMA4_TOWERS, {"towers": GEMMA4_IMAGES}),
    (
        "voxtral", "VoxtralConfig", VOXTRAL,
        {"ministral": {"model_type": "llama", "rope_parameters": DEFAULT | {"rope_theta": 1e8}}},
    ),
    ("ultravox", "UltravoxConfig", {}, {"llama": ULTRAVOX}),
    ("qwen2audio", "Qwen2AudioConfig", QWEN2_AUDIO, {"qwen2": {"model_type": "qwen2"}}),
    (
        "mistral3-images", "Mistral3Config", PIXTRAL_TOWER,
        {
            "ministral3": {
                "model_type": "ministral3", "rope_parameters": MINISTRAL_ROPE,
                "tie_word_embeddings": True,
            },
        },
    ),
    (
        "mistral3-images", "Mistral3Config",
        {**PIXTRAL_TOWER, "multimodal_projector_bias": True, "tie_word_embeddings": False},
        {"mistral": {"model_type": "mistral", "rope_parameters": DEFAULT | {"rope_theta": 1e9}}},
    ),
    *LLAVA_CASES,
    (
        "lightonocr", "LightOnOcrConfig",
        {
            "image_token_id": 96, "vision_config": PIXTRAL_TOWER["vision_config"],
            "tie_word_embeddings": True,
        },
        {"lightonocr": {"model_type": "qwen3", "tie_word_embeddings": True}},
    ),
    (
        "minicpmv", "MiniCPMVConfig", {**MINICPM_TOWER, "version": 2.6},
        {"qwen2": {"hidden_size": 256, "num_hidden_layers": 1, "tie_word_embeddings": False}},
    ),
    (
        "minicpmv4", "MiniCPMVConfig", {**MINICPM_TOWER, "version": 4.0},
        {
            "llama": {
                "hidden_size": 256, "num_hidden_layers": 1, "tie_word_embeddings": False,
                "rope_theta": 1e4,
                "rope_scaling": {
                    key: value
                    for key, value in LONGROPE.items()
                    if key in ("rope_type", "short_factor", "long_factor")
                } | {"original_max_position_embeddings": 512},
            },
        },
    ),
    (
        "minicpmv45", "MiniCPMVConfig", {**MINICPM_TOWER, "version": 4.5},
        {"qwen3": {"hidden_size": 256, "num_hidden_layers": 1, "tie_word_embeddings": False}},
    ),
    ("glm4v", "Glm4vConfig", GLM_TOWER, {"text": GLM_TEXT}),  # without its tower
    ("glm4v-images", "Glm4vConfig", GLM_TOWER, {"mrope": GLM_TEXT}),
    ("glm4vmoe-images", "Glm4vMoeConfig", GLM_TOWER, {"mrope": GLM_TEXT | CORRECTED}),
    (
        "glm-ocr", "GlmOcrConfig", GLM_OCR_TOWER,
        {"mrope": {**GLM_TEXT, "head_dim": 16, "num_nextn_predict_layers": 1}},
    ),
    (
        "paddleocr-vl", "PaddleOCRVLConfig", {**PADDLE_TOWER, "tie_word_embeddings": False},
        {"mrope": PADDLE_TEXT},
    ),
    ("lfm2-vl", "Lfm2VlConfig", LFM2_TOWER, {"tied": LFM2_IMAGES}),
    (
        "lfm2-vl", "Lfm2VlConfig",
        {
            **LFM2_TOWER, "projector_use_layernorm": False, "projector_bias": False,
        },
        {"plain": LFM2_IMAGES},
    ),
)  # fmt: skip
