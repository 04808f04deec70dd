"""Tiny configurations of every architecture, of sizes that every kernel takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID
from tests.models.families.published_sizes import (
    SMALL_GRID_TOWER,
    SMALL_INTERN,
    SMALL_PIXTRAL,
    SMALL_SOUND_TOWER,
    SMALL_TOWER,
    SMALL_WHISPER,
    SMALL_WINDOWS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.config import ModelConfig

LAYERS = 3
SHAPE = {
    "layers": LAYERS, "hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "head_dim": 64,
    "max_context": 64, "vocab_size": 64, "norm_eps": 1e-6, "rope_base": 1e4, "tied": True,
}  # fmt: skip
_CLIP = {**SMALL_TOWER, "layers_read": 1, "tower_activation": "quick_gelu"}
_BIASES = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True)
_EXPERTS = {
    "experts": 5, "experts_per_token": 2, "expert_ffn": 32, "normalized": True,
    "routed": (False, True, True),
}  # fmt: skip
_CORRECTED = {
    **_EXPERTS, "scores": SIGMOID, "choice_bias": True, "sum_offset": 1e-20, "shared_ffn": 64,
}  # fmt: skip
_MULTIPLIERS = {
    "embedding_scale": 12.0, "attention_scale": 0.1, "residual_scale": 0.2, "logit_scale": 4.0,
}  # fmt: skip
_SWASH = {**_MULTIPLIERS, "windows": (None, 32, 32), "rope_bases": (None, 1e4, 1e4)}
_MAMBA = {
    "ssm_heads": 16, "ssm_width": 16, "ssm_groups": 2, "ssm_state": 8, "taps": 4,
}  # fmt: skip
_DELTA_NET = {
    "attends": (False, True, True), "rotary_width": 64, "key_heads": 2, "value_heads": 16,
    "key_width": 8, "value_width": 16, "taps": 4,
}  # fmt: skip
_SMALL_PARTS = {
    "hidden": 128, "image_size": 16, "patch_size": 4, "table_side": 6, "queries": 16,
    "tower_layers": 2, "tower_hidden": 64, "tower_ffn": 96, "tower_heads": 2,
    "tower_norm_eps": 1e-6,
}  # fmt: skip
_DELTA_NET_EXPERTS = {
    **_DELTA_NET, **_EXPERTS, "routed": (True,) * 3, "shared_ffn": 64, "shared_gate": True,
}  # fmt: skip
_MROPE_TOWER = {**SMALL_GRID_TOWER, "rope_sections": (11, 11, 10)}
_DEEPSTACK_TOWER = {
    **SMALL_GRID_TOWER, "rope_sections": (12, 10, 10), "is_stacked": (True, False),
}  # fmt: skip
_CONVOLUTIONS = {"taps": 3, "attends": (False, True, True)}
_LATENT = {
    "kv_heads": 1, "query_rank": 32, "latent": 32, "rotary_width": 32, "key_width": 32,
    "value_width": 32, "attention_scale": 0.125, "turns_neighbors": True,
}  # fmt: skip
_DEEPSEEK = {**_LATENT, **_CORRECTED, "factor": 1.8}
_GEMMA4_MOE: Mapping[str, Any] = {
    "windows": (32, None, 32), "local_head_dim": 64, "local_rope_base": 1e4,
    "layer_embedding": None, "caching_layers": 3, "ffns": (96,) * 3, "logit_cap": 30.0,
    **_EXPERTS, "routed": (True,) * 3,
}  # fmt: skip
_GEMMA4 = {
    "windows": (32, None, 32), "local_head_dim": 64, "local_rope_base": 1e4,
    "layer_embedding": 32, "caching_layers": 2, "ffns": (96, 96, 128), "logit_cap": 30.0,
}  # fmt: skip
# What an architecture's configuration has besides.
EXTRA: Mapping[str, Mapping[str, Any]] = {
    "afmoe": {**_CORRECTED, "windows": (32, 32, None)},
    "bailingmoe": {**_EXPERTS, "shared_ffn": 64},
    "bailingmoe2": {
        **_CORRECTED, "rotary_width": 32, "normed_heads": True, "experts": 6, "groups": 3,
        "groups_per_token": 2,
    },
    "bailingmoe3": {
        **_DEEPSEEK, "attends": (False, True, True), "delta_heads": 4, "delta_width": 16, "taps": 4,
    },
    "bloom": {**_BIASES, "kv_heads": 4, "head_dim": 48},
    "cohere2": {"logit_scale": 0.25, "windows": (32, 32, None)},
    "cohere2moe": {
        **_EXPERTS, "shared_ffn": 64, "scores": SIGMOID, "logit_scale": 0.25,
        "windows": (None, 32, None),
    },
    "command-r": {"logit_scale": 0.25},
    "dbrx": {**_EXPERTS, "clip": 2.0, "routed": (True,) * 3},
    "deepseek": {**_EXPERTS, "shared_ffn": 64, "normalized": False},
    **dict.fromkeys(("deepseek2", "deepseek32", "glm-dsa"), _DEEPSEEK),
    "exaone-moe": {**_CORRECTED, "windows": (32, 32, None)},
    "falcon": {"kv_heads": 1},
    "falcon-h1": {**_MAMBA, "ssm_heads": 12},  # a projection has rows that fill no whole block
    "gemma2": {"query_scale": 0.125, "attention_cap": 50.0, "logit_cap": 30.0},
    "gemma3": {"query_scale": 0.125},
    "gemma3-images": {"query_scale": 0.125, **SMALL_TOWER, "pooled_patches": 1},
    "gemma3n": {
        "windows": (32, None, 32), "local_head_dim": 64, "local_rope_base": 1e4,
        "layer_embedding": 32, "caching_layers": 2, "ffns": (96, 96, 128), "logit_cap": 30.0,
        "streams": 4, "laurel_rank": 32, "layer_vocab": 60, "deviations": (1.6, 1.6, None),
    },
    "gemma4": _GEMMA4,
    "gemma4-images": {
        **_GEMMA4, **SMALL_GRID_TOWER, "tower_head_dim": 64, "tower_norm_eps": 1e-6,
        "tower_clips": True, "tower_standardizes": True,
    },
    "gemma4-sound": {
        **_GEMMA4, **SMALL_GRID_TOWER, "tower_head_dim": 64, "tower_norm_eps": 1e-6,
        "tower_clips": True, "tower_standardizes": True, **SMALL_SOUND_TOWER,
    },
    "gemma4-unified": {
        **_GEMMA4, "layer_embedding": None, "caching_layers": 3, "patch_size": 4,
        "merged_patches": 2, "table_side": 24, "square_width": 64, "square_eps": 1e-6,
        "image_blocks": True, "sound_frame": 64,
    },
    "dots1": _CORRECTED,
    "ernie4_5-moe": {**_EXPERTS, "choice_bias": True, "min_sum": 1e-12, "shared_ffn": 64},
    "gemma4-moe": _GEMMA4_MOE,
    "gemma4-moe-images": {
        **_GEMMA4_MOE, **SMALL_GRID_TOWER, "tower_head_dim": 64, "tower_norm_eps": 1e-6,
        "tower_clips": False, "tower_standardizes": True, "image_blocks": True,
    },
    "glm4moe": {**_CORRECTED, "rotary_width": 32, "normed_heads": True},
    "gpt-oss": {
        **_EXPERTS, "routed": (True,) * 3, "scores": CHOSEN, "expert_bias": True,
        "windows": (32, None, 32), "attention_bias": True, "output_bias": True,
    },
    "gpt2": _BIASES,
    "gptj": {"mlp_bias": True, "tied": False},
    "gptneox": {"rotary_width": 32, "parallel": True, **_BIASES},
    "granite": _MULTIPLIERS,
    "granite-vision": {**_MULTIPLIERS, **SMALL_TOWER, "read_layers": (1, 2)},
    "granite_swa": _SWASH,
    "granitehybrid": {**_MULTIPLIERS, **_MAMBA, "attends": (False, True, True)},
    "granitehybrid-moe": {
        **_MULTIPLIERS, **_MAMBA, "attends": (False, True, True),
        **_EXPERTS, "routed": (True,) * 3, "scores": CHOSEN, "shared_ffn": 64,
    },
    "granitemoe": {**_MULTIPLIERS, **_EXPERTS, "routed": (True,) * 3, "scores": CHOSEN},
    "granitemoe_swa": {**_SWASH, **_EXPERTS, "routed": (True,) * 3, "scores": CHOSEN},
    "hrm_text": {
        "stack_layers": 1, "slow_cycles": 1, "fast_cycles": 2, "embedding_scale": 50.0,
    },
    "hunyuan-moe": {**_EXPERTS, "routed": (True,) * 3, "shared_ffn": 96},
    "hy_v3": _CORRECTED,
    "kimi-linear": {
        **_DEEPSEEK, "attends": (False, True, True), "delta_heads": 4, "delta_width": 16, "taps": 4,
        "turns_neighbors": False,
    },
    "jais2": {"rotary_width": 64, **_BIASES},
    "internvl": {"attention_bias": True, **SMALL_INTERN},
    "internvl35": SMALL_INTERN,
    "jamba": {
        **_EXPERTS, "normalized": False, "attends": (False, True, True), "ssm_inner": 128,
        "ssm_state": 16, "step_rank": 32, "taps": 4,
    },
    "laguna": {
        **_CORRECTED, "windows": (None, 32, None), "local_heads": 8, "rotary_width": 32,
        "local_rotary_width": 64, "local_rope_base": 1e3,
    },
    "lfm2": _CONVOLUTIONS,
    "lfm2moe": {
        **_CONVOLUTIONS, **_EXPERTS, "scores": SIGMOID, "choice_bias": True, "sum_offset": 1e-6,
    },
    "lfm2-vl": {
        **_CONVOLUTIONS, **SMALL_GRID_TOWER, "tower_norm_eps": 1e-6, "projector_hidden": 64,
        "projector_norm": True, "projector_bias": True,
    },
    "lfm3": {**_CONVOLUTIONS, "windows": (3, 32, None), "local_rope_base": 1e4},
    "llama4": {
        **_EXPERTS, "experts_per_token": 1, "normalized": False, "scores": SIGMOID,
        "shared_ffn": 32, "rotated": (True, True, False), "normed_heads": True,
        "query_growth": 0.1, "original_context": 8,
    },
    "mamba": {"ssm_inner": 128, "ssm_state": 16, "step_rank": 32, "taps": 4, "state_eps": 1e-6},
    "rwkv7": {
        "kv_heads": 4, "decay_rank": 32, "rate_rank": 32, "value_rank": 32, "gate_rank": 32,
    },
    "mamba2": {**_MAMBA, "kinds": ("mamba",) * 3},
    "minicpm": {**_MULTIPLIERS, "original_context": 64},
    "minicpm3": {**_LATENT, **_MULTIPLIERS, "original_context": 64, "turns_neighbors": False},
    "minimax-m2": {
        **_EXPERTS, "routed": (True,) * 3, "scores": SIGMOID, "choice_bias": True,
        "rotary_width": 32,
    },
    "mistral3": {"query_growth": 0.1, "original_context": 8},
    "voxtral": {**SMALL_WHISPER, "joined_states": 4},
    "ultravox": {**SMALL_WHISPER, "joined_states": 3, "projector_width": 48},
    "qwen2audio": {**SMALL_WHISPER, "attention_bias": True},
    "mistral3-images": {"query_growth": 0.1, "original_context": 8, **SMALL_PIXTRAL},
    "mixtral": {**_EXPERTS, "routed": (True,) * 3},
    "mpt": {"clip": 2.0, "kv_heads": 4, "head_dim": 48},
    "mistral4": {
        **_LATENT, **_EXPERTS, "shared_ffn": 64, "query_growth": 0.1, "original_context": 32,
    },
    "maple": {
        **_EXPERTS, "routed": (True,) * 3, "rotary_width": 32, "windows": (32, 32, None),
    },
    "muse-glimmer": {
        "query_scale": 0.5, "logit_factor": 0.4, "logit_cap": 20.0, "windows": (32, 32, None),
    },
    "nanbeige": {"loops": LAYERS, "loop_norm": True},
    "nemotron": {"rotary_width": 32},
    "nemotron_h": {**_MAMBA, "kinds": ("mamba", "mlp", "attention")},
    "nemotron_h_moe": {
        **_MAMBA, "kinds": ("mamba", "moe", "attention"), **_EXPERTS, "latent": 32,
        "routed": (False, True, False), "scores": SIGMOID, "choice_bias": True, "shared_ffn": 64,
        "sum_offset": 1e-20, "factor": 2.5,
    },
    "mimo2": {
        **_EXPERTS, "scores": SIGMOID, "choice_bias": True, "sum_offset": 1e-20,
        "windows": (None, 32, None), "local_kv_heads": 4, "value_width": 32, "value_scale": 0.7,
        "rotary_width": 32, "local_rotary_width": 32, "local_rope_base": 1e3,
    },
    "pangu-embedded": {"attention_bias": True, "output_bias": True},
    "step35": {
        **_CORRECTED, "windows": (None, 32, None), "local_heads": 8, "rotary_width": 32,
        "local_rotary_width": 64, "local_rope_base": 1e3, "expert_limits": (0.2,) * 3,
        "mlp_limits": (0.2, None, None),
    },
    "phi2": {"rotary_width": 32, "tied": False, **_BIASES},
    "phi3": {"rotary_width": 64, "long_divisors": (), "original_context": 64},
    "plm": {**_LATENT, "query_rank": None},
    "phimoe": {
        **_EXPERTS, "routed": (True,) * 3, "normalized": False, "attention_bias": True,
        "output_bias": True, "tied": False, "head_bias": True, "noise": 0.01,
        "original_context": 64,
    },
    "glm4v": {"attention_bias": True, "rotary_width": 32},
    "glm4v-images": {
        "attention_bias": True, "rotary_width": 32, "rope_sections": (4, 6, 6),
        "tower_norm_eps": 1e-5, "projector_ffn": 96, **SMALL_GRID_TOWER,
    },
    "glm4vmoe-images": {
        **_CORRECTED, "normed_heads": False, "attention_bias": True, "rotary_width": 32,
        "rope_sections": (4, 6, 6), "tower_norm_eps": 1e-5, "projector_ffn": 96, **SMALL_GRID_TOWER,
    },
    "glm-ocr": {
        "rotary_width": 32, "rope_sections": (4, 6, 6), "tower_norm_eps": 1e-5,
        "projector_ffn": 96,
        **{key: value for key, value in SMALL_GRID_TOWER.items() if key != "table_side"},
    },
    "paddleocr-vl": {"rope_sections": (8, 12, 12), "tower_norm_eps": 1e-6, **SMALL_GRID_TOWER},
    "minicpmv": {**_SMALL_PARTS, "attention_bias": True},
    "minicpmv4": {**_SMALL_PARTS, "original_context": 64},
    "minicpmv45": _SMALL_PARTS,
    "lightonocr": {**SMALL_PIXTRAL, "has_merger": True},
    "llava": _CLIP,
    "llava-next": _CLIP,
    "pixtral": {**SMALL_PIXTRAL, "has_merger": False},
    "qwen2": {"attention_bias": True},
    "qwen2moe": {**_EXPERTS, "attention_bias": True, "shared_ffn": 64, "shared_gate": True},
    "qwen2vl": {"attention_bias": True},
    "qwen2vl-images": {
        "attention_bias": True, "rope_sections": (8, 12, 12),
        **{key: value for key, value in SMALL_GRID_TOWER.items() if key != "table_side"},
    },
    "qwen25vl-images": {
        "attention_bias": True, "rope_sections": (8, 12, 12), **SMALL_WINDOWS,
    },
    "qwen25omni": {
        "attention_bias": True, "rope_sections": (8, 12, 12), **SMALL_WINDOWS, **SMALL_WHISPER,
    },
    "seed_oss": {"attention_bias": True},
    "mellum": {**_EXPERTS, "windows": (None, 40, None), "local_rope_base": 3e3},
    "olmo": {"clip": 2.0},
    "olmoe": _EXPERTS,
    "deci": {
        "key_heads": (1, None, 2), "linear": (False, True, False), "ffns": (64, 96, 96),
    },
    "openelm": {"query_heads": (2, 4, 2), "key_heads": (1, 2, 1), "ffns": (64, 96, 96)},
    "orion": {"rotary_width": 64},
    "qwen3moe": _EXPERTS,
    "qwen3vl-images": _DEEPSTACK_TOWER,
    "qwen3vlmoe": _EXPERTS,
    "qwen3vlmoe-images": {**_EXPERTS, **_DEEPSTACK_TOWER},
    "qwen3next": {
        **_DELTA_NET, **_EXPERTS, "routed": (True,) * 3, "shared_ffn": 64, "shared_gate": True,
    },
    "qwen35": _DELTA_NET,
    "qwen35-images": {**_DELTA_NET, **_MROPE_TOWER},
    "qwen35moe": _DELTA_NET_EXPERTS,
    "qwen35moe-images": {**_DELTA_NET_EXPERTS, **_MROPE_TOWER},
    "smallthinker": {
        **_EXPERTS, "routed": (True,) * 3, "scores": SIGMOID, "windows": (None, 32, 32),
        "rotated": (False, True, True),
    },
    "smollm3": {"rotated": (True, True, False)},
    "spark2_5": {
        "rotary_width": 32, "windows": (32, 32, None), "local_rotary_width": 64,
        "local_rope_base": 1e3,
    },
    "stablelm": {"rotary_width": 32, "attention_bias": True},
    "qwen": {"attention_bias": True},
    "refact": {"kv_heads": 1, "head_dim": 48},
    "starcoder": {**_BIASES, "kv_heads": 1},
    "starcoder2": _BIASES,
    "smolvlm": {**SMALL_TOWER, "joined_patches": 4},
}  # fmt: skip


def tiny(architecture: str, **changes: Any) -> ModelConfig:
    family = ARCHITECTURES[architecture]
    config: ModelConfig = family.config(**{**SHAPE, **EXTRA.get(architecture, {}), **changes})
    return config
