"""Tiny models with experts: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.autumn_cases import AUTUMN_CASES
from tests.models.families.case_arguments import (
    AFMOE,
    CORRECTED,
    DEFAULT,
    ERNIE_EXPERTS,
    EXPERTS,
    K_EXAONE,
    LATENT,
    LINEAR,
    LING,
    LLAMA4,
    MINIMAX,
    MINIMAX_FILE,
    MULTIPLIERS,
    SCOUT_ROPE,
    YARN,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# Each row: the architecture, the configuration's class in transformers, its arguments by case, and
# `published` and `tower` of these cases, if any.
EXPERT_CASES: Sequence[tuple[Any, ...]] = (
    ("afmoe", "AfmoeConfig", {
        "afmoe": {**AFMOE, "num_hidden_layers": 5},
        "bias": {
            **AFMOE, "num_shared_experts": 2, "tie_word_embeddings": True, "attention_bias": True,
        },
    }, {"route_norm": True, "score_func": "sigmoid", "n_group": 1, "topk_group": 1}),
    ("bailingmoe2", "BailingMoeV2Config", {
        "ling": LING,
        "pairs": {**LING, "n_group": 6, "num_shared_experts": 2, "head_dim": 16},
    }),
    ("exaone-moe", "ExaoneMoeConfig", {
        "k_exaone": K_EXAONE,
        "groups": {
            **K_EXAONE, "num_experts": 8, "n_group": 4, "topk_group": 2, "num_shared_experts": 2,
            "tie_word_embeddings": True, "norm_topk_prob": False, "first_k_dense_replace": 2,
        },
    }, {"scoring_func": "sigmoid", "num_nextn_predict_layers": 0}),
    ("minimax-m2", "MiniMaxM2Config", {
        "minimax": MINIMAX,
        "tied": {**MINIMAX, "num_local_experts": 5, "tie_word_embeddings": True},
    }, MINIMAX_FILE),
    ("llama4", "Llama4TextConfig", {
        "chunks": {
            **LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False, "floor_scale": 64,
            "attn_scale": 0.2, "attention_chunk_size": 400, "no_rope_layers": [1, 0, 1, 0],
        },
        "scout": {**LLAMA4, "rope_parameters": SCOUT_ROPE, "tie_word_embeddings": True},
    }),
    ("dbrx", "DbrxConfig", {
        "dbrx": {
            "d_model": 48, "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.8, "rope_theta": 5000.0},
            "ffn_config": {"ffn_hidden_size": 20, "moe_num_experts": 7, "moe_top_k": 3},
            "rope_parameters": DEFAULT,
        },
        "one": {
            "d_model": 48, "attn_config": {"kv_n_heads": 1, "clip_qkv": 8, "rope_theta": 5000.0},
            "ffn_config": {"ffn_hidden_size": 20, "moe_num_experts": 5, "moe_top_k": 1},
            "rope_parameters": DEFAULT,
        },
    }, dict.fromkeys((
        "head_dim", "intermediate_size", "num_key_value_heads", "rms_norm_eps",
    ))),
    ("mixtral", "MixtralConfig", {
        "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2, "rope_parameters": LINEAR},
        "window": {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 40},
    }),
    ("qwen3moe", "Qwen3MoeConfig", {
        "qwen3moe": {**EXPERTS, "norm_topk_prob": True, "tie_word_embeddings": True},
        "mixed": {
            **EXPERTS, "num_hidden_layers": 5, "mlp_only_layers": [1], "attention_bias": True,
            "decoder_sparse_step": 2, "use_sliding_window": True, "sliding_window": 40,
        },
    }),
    ("mellum", "MellumConfig", {
        "mellum": {
            **EXPERTS, "norm_topk_prob": True, "num_hidden_layers": 5, "sliding_window": 40,
            "layer_types": [*["sliding_attention"] * 3, "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": YARN | {"attention_factor": 1.2},
                "sliding_attention": DEFAULT | {"rope_theta": 3000.0},
            },
        },
        "linear": {
            **EXPERTS, "norm_topk_prob": True, "sliding_window": 60,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {"full_attention": LINEAR, "sliding_attention": DEFAULT},
        },
    }),
    ("qwen2moe", "Qwen2MoeConfig", {
        "mixed": {
            **EXPERTS, "shared_expert_intermediate_size": 40, "mlp_only_layers": [0],
            "norm_topk_prob": True, "tie_word_embeddings": True,
        },
        "qwen2moe": {**EXPERTS, "shared_expert_intermediate_size": 40},
    }),
    ("glm4moe", "Glm4MoeConfig", {
        "air": {**CORRECTED, "attention_bias": True, "routed_scaling_factor": 1.8},
        "normed": {
            **CORRECTED, "use_qk_norm": True, "n_shared_experts": 2, "tie_word_embeddings": True,
            "first_k_dense_replace": 2,
        },
    }),
    ("dots1", "Dots1Config", {
        "dots1": {**CORRECTED, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
        "plain": {**CORRECTED, "norm_topk_prob": False, "n_shared_experts": 2},
    }),
    ("hunyuan-moe", "HunYuanMoEV1Config", {
        "alpha": {
            "num_experts": 5, "moe_topk": 2, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0,
            },
        },
        "layers": {"num_experts": 5, "moe_topk": [2, 2, 2]},
    }),
    ("granite_swa", "GraniteSWAConfig", {
        "granite_swa": {**MULTIPLIERS, "sliding_window": 40, "tie_word_embeddings": True},
        "bases": {
            **MULTIPLIERS, "sliding_window": 7, "attention_bias": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "layer_rope_theta": [1e3, 1e6, 1e3], "tie_word_embeddings": False,
        },
    }),
    ("granitemoe_swa", "GraniteMoeSWAConfig", {
        "granitemoe_swa": {
            **MULTIPLIERS, "num_local_experts": 5, "num_experts_per_tok": 2,
            "shared_intermediate_size": 40, "sliding_window": 40, "tie_word_embeddings": True,
        },
        "alone": {
            **MULTIPLIERS, "num_local_experts": 5, "num_experts_per_tok": 2,
            "sliding_window": 40, "layer_rope_theta": [0, 1e4, 1e4],
        },
    }),
    ("olmoe", "OlmoeConfig", {
        "olmoe": {"num_experts": 7, "num_experts_per_tok": 3, "num_key_value_heads": 4},
        "one": {"num_experts": 5, "num_experts_per_tok": 1, "tie_word_embeddings": True},
        "every": {"num_experts": 3, "num_experts_per_tok": 3, "norm_topk_prob": True},
    }),
    ("ernie4_5-moe", "Ernie4_5_MoeConfig", {
        "shared": {
            **ERNIE_EXPERTS, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
            "moe_layer_end_index": 2,
        },
        "alone": {
            **ERNIE_EXPERTS, "moe_num_shared_experts": 0, "moe_layer_start_index": 0,
            "moe_layer_end_index": 2, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
    }),
    ("deepseek2", "Glm4MoeLiteConfig", {
        "glm": {**LATENT, "q_lora_rank": 18, "routed_scaling_factor": 1.8},
    }),
    ("deepseek2", "DeepseekV2Config", {
        "v2": {
            **LATENT, "q_lora_rank": None, "first_k_dense_replace": 1,
            "rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        },
    }),
    ("deepseek2", "DeepseekV3Config", {
        "v3": {
            **LATENT, "q_lora_rank": 18, "first_k_dense_replace": 1, "n_shared_experts": 1,
            "routed_scaling_factor": 2.5, "tie_word_embeddings": True,
        },
        "groups": {
            **LATENT, "q_lora_rank": 18, "first_k_dense_replace": 1, "n_shared_experts": 1,
            "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
        },
    }),
    *AUTUMN_CASES,
)  # fmt: skip
