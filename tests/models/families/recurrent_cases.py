"""Tiny models of families with recurrent layers: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.autumn_cases import IN_TORCH
from tests.models.families.case_arguments import DEFAULT, MULTIPLIERS

if TYPE_CHECKING:
    from collections.abc import Sequence

_DELTA_NET = {
    "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 10, "linear_value_head_dim": 16,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 10, "mamba_chunk_size": 64,
}  # fmt: skip
_GRANITE_H = {
    **MULTIPLIERS, **_MAMBA, "position_embedding_type": "nope", "shared_intermediate_size": 40,
    "layer_types": ["mamba", "attention", "mamba"],
}  # fmt: skip
_NEMOTRON_H = {
    "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 10,
    "chunk_size": 64, "layer_norm_epsilon": 1e-5, "rms_norm_eps": 1e-5,
}  # fmt: skip
_NEMOTRON_EXPERTS = {
    **_NEMOTRON_H, "num_hidden_layers": 4, "n_routed_experts": 5, "num_experts_per_tok": 2,
    "moe_intermediate_size": 28, "moe_shared_expert_intermediate_size": 36,
    "routed_scaling_factor": 2.5, "intermediate_size": 28,
    "layers_block_type": ["mamba", "moe", "attention", "moe"],
}  # fmt: skip
_FALCON_H1 = {
    "mamba_n_heads": 5, "mamba_d_head": 16, "mamba_d_ssm": 80, "mamba_chunk_size": 64,
    "mamba_norm_before_gate": False, "num_hidden_layers": 2,
}  # fmt: skip

_KIMI = {
    "num_key_value_heads": 4, "kv_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 12,
    "v_head_dim": 14, "num_local_experts": 7, "num_experts_per_tok": 3, "n_shared_experts": 1,
    "moe_intermediate_size": 20, "linear_head_dim": 16, "linear_num_heads": 4,
}  # fmt: skip
_LING3 = {
    **{key: value for key, value in _KIMI.items() if not key.startswith("linear")},
    "q_lora_rank": 18, "num_local_experts": 8, "n_group": 4, "topk_group": 2,
    "first_k_dense_replace": 1, "layer_group_size": 3, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 6e6},
}  # fmt: skip
_MAMBA2 = {
    "num_heads": 6, "head_dim": 16, "n_groups": 2, "state_size": 10, "layer_norm_epsilon": 1e-3,
}  # fmt: skip
# Keys of `SMALL` that files of models without attention do not have.
_UNSAID = dict.fromkeys((
    "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_key_value_heads",
    "rms_norm_eps",
))  # fmt: skip
# With heads as wide as published ones: kernels of llama.cpp read 64 columns at a time.
RWKV7 = _UNSAID | {
    "model_type": "rwkv7", "attn": None, "attn_mode": "chunk", "head_dim": 64, "norm_eps": 1e-5,
    "hidden_size": 128, "intermediate_size": 56, "hidden_act": "sqrelu", "hidden_ratio": 4.0,
    "norm_bias": True, "norm_first": True, "fuse_norm": False, "decay_low_rank_dim": 7,
    "a_low_rank_dim": 9, "v_low_rank_dim": 5, "gate_low_rank_dim": 11, "value_dim": [128] * 2,
    "num_hidden_layers": 2,
}  # fmt: skip
_JAMBA = {
    "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 5,
    "num_experts_per_tok": 2, "mamba_d_state": 10, "mamba_dt_rank": 5, "mamba_d_conv": 3,
}  # fmt: skip

# Each row: the architecture, the configuration's class in transformers, its arguments by case, and
# `published` of its cases.
RECURRENT_CASES: Sequence[tuple[Any, ...]] = (
    ("jamba", "JambaConfig", {
        "jamba": _JAMBA,
        "reasoning": {**_JAMBA, "num_experts": 1, "tie_word_embeddings": True},
    }, {"head_dim": None}),
    ("kimi-linear", "KimiLinearConfig", {
        "kimi": {
            **_KIMI, "num_hidden_layers": 4, "num_local_experts": 8, "num_expert_group": 4,
            "topk_group": 2, "layer_types": [*["linear_attention"] * 3, "full_attention"],
        },
    }),
    ("kimi-linear", "KimiLinearConfig", {
        "published": {
            **_KIMI, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
    }, {
        "layer_types": None, "mlp_layer_types": None, "linear_head_dim": None,
        "linear_num_heads": None, "linear_conv_kernel_dim": None, "first_k_dense_replace": 1,
        "linear_attn_config": {
            "full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 16, "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
        "mla_use_nope": True, "moe_layer_freq": 1, "moe_router_activation_func": "sigmoid",
        "num_nextn_predict_layers": 0, "rope_theta": 1e4, "use_grouped_topk": True,
    }),
    ("bailingmoe3", "BailingHybridConfig", {"ling3": _LING3}, {
        "head_dim": 12, "linear_head_dim": None, "linear_num_heads": None, "layer_types": None,
        "linear_conv_kernel_dim": None, "mlp_layer_types": None, "layer_group_size": 3,
        "expert_swiglu_limit_list": None, "gated_attention_proj_granularity_type": "head_wise",
        "group_norm_size": 1, "kda_lower_bound": -5, "kda_safe_gate": True, "linear_silu": True,
        "max_window_layers": 20, "moe_router_enable_expert_bias": True, "mtp_use_kda": False,
        "moe_shared_expert_intermediate_size": 20, "no_kda_lora": True,
        "num_kv_heads_for_linear_attn": 0, "partial_rotary_factor": 0.5, "qk_head_dim": 28,
        "rope_interleave": True, "rotary_dim": 12, "router_dtype": "fp32",
        "score_function": "sigmoid", "scoring_func": "sigmoid", "seq_aux": True,
        "topk_method": "noaux_tc", "use_bias": False, "use_mla_nope": False,
        "use_qk_norm": True, "use_qkv_bias": False, "embedding_dropout": 0.0,
        "output_dropout": 0.0, "num_nextn_predict_layers": 0, "num_experts_per_token": None,
        "num_experts_per_tok": 3, "num_expert_group": None, "n_group": 4, "moe_renormalize": None,
        "norm_topk_prob": True, "model_max_length": None, "max_position_embeddings": 512,
    }),
    ("bailingmoe3", "BailingHybridConfig", {
        "saved": {
            **_LING3, "q_lora_rank": None, "num_hidden_layers": 4, "n_group": 1, "topk_group": 1,
            "layer_types": [*["linear_attention"] * 2, *["full_attention"] * 2],
            "first_k_dense_replace": 2, "n_shared_experts": 2,
        },
    }),
    ("mamba", "MambaConfig", {
        "mamba": {
            "state_size": 10, "layer_norm_epsilon": 1e-3, "time_step_rank": 5, "conv_kernel": 3,
            "intermediate_size": 96,
        },
    }, _UNSAID | {"head_dim": None}),
    ("mamba", "FalconMambaConfig", {
        "falcon_mamba": {
            "state_size": 10, "layer_norm_epsilon": 1e-6, "intermediate_size": 96,
        },
        "norms": {
            "state_size": 7, "layer_norm_epsilon": 1e-3, "mixer_rms_eps": 1e-2,
            "intermediate_size": 96,
            "tie_word_embeddings": False,
        },
    }, _UNSAID | {"head_dim": None}),
    ("mamba2", "Mamba2Config", {
        "mamba2": _MAMBA2,
        "tied": {**_MAMBA2, "n_groups": 1, "conv_kernel": 3, "tie_word_embeddings": True},
    }, _UNSAID),
    ("qwen35", "Qwen3_5TextConfig", {
        "qwen35": {
            **_DELTA_NET, "num_hidden_layers": 4, "tie_word_embeddings": True,
            "rope_parameters": DEFAULT | {
                "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0],
                "mrope_interleaved": True,
            },
        },
        "shared_keys": {
            **_DELTA_NET, "linear_num_value_heads": 6, "linear_conv_kernel_dim": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "attention_bias": True,
        },
    }),
    ("lfm3", "Lfm3Config", {
        "lfm3": {
            "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
            "num_hidden_layers": 4, "sliding_window": 40, "norm_eps": 2e-5,
        },
        "untied": {"num_hidden_layers": 5, "conv_L_cache": 3, "tie_word_embeddings": False},
    }),
    ("qwen35moe", "Qwen3_5MoeTextConfig", {
        "qwen35moe": {
            **_DELTA_NET, "num_hidden_layers": 4, "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 28, "shared_expert_intermediate_size": 36,
        },
    }),
    ("qwen3next", "Qwen3NextConfig", {
        "qwen3next": {
            **_DELTA_NET, "linear_num_value_heads": 6, "num_hidden_layers": 4, "num_experts": 5,
            "num_experts_per_tok": 2, "moe_intermediate_size": 28,
            "shared_expert_intermediate_size": 36,
        },
    }),
    ("granitehybrid", "GraniteMoeHybridConfig", {
        "granite4_h": {
            **_GRANITE_H, "num_local_experts": 0, "num_experts_per_tok": 0,
            "tie_word_embeddings": True,
        },
        "groups": {
            **_GRANITE_H, "num_local_experts": 0, "num_experts_per_tok": 0, "mamba_n_groups": 3,
            "mamba_d_conv": 3, "attention_bias": True,
        },
    }),
    ("rwkv7", IN_TORCH, {
        "rwkv7": RWKV7,
        "tied": {
            **RWKV7, "head_dim": 12, "hidden_size": 48, "norm_eps": 1e-3, "value_dim": [48] * 3,
            "num_hidden_layers": 3, "tie_word_embeddings": True,
        },
    }),
    ("nemotron_h", "NemotronHConfig", {
        "nemotron_h": {
            **_NEMOTRON_H, "num_hidden_layers": 5,
            "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"],
        },
    }),
    ("nemotron_h_moe", "NemotronHConfig", {
        "nano": _NEMOTRON_EXPERTS,
        "latent": {**_NEMOTRON_EXPERTS, "moe_latent_size": 20, "norm_topk_prob": False},
        "mixed": {
            **_NEMOTRON_EXPERTS, "num_hidden_layers": 4, "hybrid_override_pattern": "EM-*",
            "layers_block_type": None,
        },
    }),
    ("falcon-h1", "FalconH1Config", {
        "falcon_h1": {
            **_FALCON_H1, "mamba_d_state": 10, "embedding_multiplier": 5.6, "key_multiplier": 0.4,
            "lm_head_multiplier": 0.04, "attention_in_multiplier": 1.5,
            "attention_out_multiplier": 0.94, "ssm_in_multiplier": 1.25,
            "ssm_out_multiplier": 0.24, "ssm_multipliers": [0.35, 0.25, 0.18, 0.5, 0.3],
            "mlp_multipliers": [0.88, 0.59],
        },
        "norm": {
            **_FALCON_H1, "mamba_n_heads": 6, "mamba_d_ssm": 96, "mamba_rms_norm": True,
            "mamba_n_groups": 2, "mamba_d_state": 8,
        },
    }),
    ("granitehybrid-moe", "GraniteMoeHybridConfig", {
        "granite4_h": {
            **_GRANITE_H, "num_local_experts": 5, "num_experts_per_tok": 2,
            "tie_word_embeddings": True,
        },
    }),
)  # fmt: skip
