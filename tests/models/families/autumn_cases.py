"""Tiny models of autumn 2026: rows of `EXPERT_CASES`, with experts and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import (
    DEFAULT,
    EXPERTS,
    LATENT,
    LINEAR,
    LLAMA3,
    LONGROPE,
    MINISTRAL_ROPE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# In place of a configuration's class in transformers: see torch_models.py.
IN_TORCH = "torch"
_SLIDES = ["sliding_attention", "full_attention", "sliding_attention"]
SPARK: Mapping[str, Any] = {
    "model_type": "spark2_5", "hidden_act": "gelu", "gate_attn_act_mode": "sigmoid",
    "headwise_attn_output_gate": True, "sliding_window": 40, "layer_types": _SLIDES,
    "rope_parameters": {
        "full_attention": DEFAULT | {"partial_rotary_factor": 0.5},
        "sliding_attention": DEFAULT | {"partial_rotary_factor": 1.0, "rope_theta": 3000.0},
    },
}  # fmt: skip
SMALLTHINKER: Mapping[str, Any] = {
    "model_type": "smallthinker", "intermediate_size": None, "rope_theta": 5000.0,
    "moe_num_primary_experts": 7, "moe_num_active_primary_experts": 3, "moe_ffn_hidden_size": 20,
    "num_hidden_layers": 5, "sliding_window_size": 40,
}  # fmt: skip
LING_1: Mapping[str, Any] = {
    **EXPERTS, "model_type": "bailing_moe", "num_shared_experts": 2, "norm_topk_prob": True,
    "first_k_dense_replace": 0, "rope_theta": 5000.0,
}  # fmt: skip
COHERE_MOE: Mapping[str, Any] = {
    "logit_scale": 0.25, "layer_norm_eps": 1e-3, "rms_norm_eps": None, "num_experts": 7,
    "num_experts_per_tok": 3, "sliding_window": 45, "num_hidden_layers": 5,
    "prefix_dense_intermediate_size": 40, "mlp_layer_types": ["dense", *["sparse"] * 4],
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
}  # fmt: skip


def _nas(group: int | None, factor: float | None, *, linear: bool = False) -> dict[str, Any]:
    """A layer of Nemotron-NAS."""
    return {
        "attention": {
            "n_heads_in_group": group, "replace_with_linear": linear, "window_length": None,
            "no_op": group is None and not linear, "num_sink_tokens": None, "sparsify": None,
        },
        "ffn": {
            "ffn_mult": factor, "no_op": factor is None, "replace_with_linear": False,
            "sparsify": None,
        },
    }  # fmt: skip


NAS = {
    "model_type": "nemotron-nas", "rope_theta": 5000.0, "intermediate_size": None,
    "num_key_value_heads": None, "head_dim": None, "num_hidden_layers": 5,
}  # fmt: skip
LAGUNA: Mapping[str, Any] = {
    **EXPERTS, "shared_expert_intermediate_size": 36, "moe_routed_scaling_factor": 2.5,
    "num_hidden_layers": 5, "sliding_window": 40,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
    "num_attention_heads_per_layer": [4, 6, 6, 6, 4],
    "rope_parameters": {
        "full_attention": LINEAR | {"partial_rotary_factor": 0.5},
        "sliding_attention": DEFAULT | {"partial_rotary_factor": 1.0, "rope_theta": 3000.0},
    },
}  # fmt: skip
PHI_MOE: dict[str, Any] = {
    "num_local_experts": 7, "num_experts_per_tok": 2, "attention_bias": True,
    "lm_head_bias": True,
}  # fmt: skip
# As published files have them; the lists go on with a layer that predicts further tokens.
STEP_ROPE = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
STEP: Mapping[str, Any] = {
    "num_hidden_layers": 5, "num_attention_groups": 2, "sliding_window": 40,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, *["full_attention"] * 2],
    "rope_theta": [5000.0, *[3000.0] * 3, 5000.0, 5000.0],
    "partial_rotary_factors": [0.5, *[1.0] * 3, 0.5, 0.5], "num_nextn_predict_layers": 1,
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 6, "head_dim": 12,
        "num_attention_groups": 2, "true_head_dim": 12,
    },
    "swiglu_limits": [0.0, 0.0, 0.0, 0.2, 0.3, 0.0],
    "swiglu_limits_shared": [0.2, 0.0, 0.0, 0.4, 0.0, 0.0],
    "moe_layers_enum": "1,2,3,4", "moe_num_experts": 7, "moe_top_k": 3,
    "moe_intermediate_size": 20, "share_expert_dim": 24, "moe_router_scaling_factor": 3.0,
    "rope_scaling": STEP_ROPE,
}  # fmt: skip
STEP_FILE = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 4,
    "head_dim": 12, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "max_seq_len": 512,
    "use_moe": True, "norm_expert_weight": True, "moe_router_activation": "sigmoid",
    "att_impl_type": "GQA", "use_head_wise_attn_gate": True, "use_moe_router_bias": True,
    "need_fp32_gate": True, "yarn_only_types": ["full_attention"],
    **STEP,
}  # fmt: skip
STEP_TOWER = {
    "vision_config": {
        "width": 24, "layers": 1, "heads": 2, "mlp_ratio": 2.0, "image_size": 10, "patch_size": 5,
    },
}  # fmt: skip
MIMO: Mapping[str, Any] = {
    "num_hidden_layers": 4, "head_dim": 24, "v_head_dim": 14, "attention_value_scale": 0.6,
    "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": DEFAULT | {"partial_rotary_factor": 0.334},
        "sliding_attention": DEFAULT | {"partial_rotary_factor": 0.334, "rope_theta": 3000.0},
    },
}  # fmt: skip
MIMO_FILE = {
    "rope_parameters": None, "layer_types": None, "mlp_layer_types": None, "rms_norm_eps": None,
    "layernorm_epsilon": 1e-5, "hybrid_layer_pattern": [0, 1, 1, 0], "hybrid_block_size": None,
    "moe_layer_freq": [0, 1, 1, 1], "partial_rotary_factor": 0.334, "rope_theta": 5000.0,
    "swa_rope_theta": 3000.0, "swa_num_key_value_heads": 4, "swa_num_attention_heads": 4,
    "swa_head_dim": 24, "swa_v_head_dim": 14, "sliding_window": 39, "sliding_window_size": 39,
    "attention_chunk_size": 39, "add_swa_attention_sink_bias": True, "scoring_func": "sigmoid",
    "add_full_attention_sink_bias": False, "topk_method": "noaux_tc", "n_shared_experts": None,
    "routed_scaling_factor": None,
}  # fmt: skip
MUSE: Mapping[str, Any] = {
    "sliding_window": 40, "num_hidden_layers": 5, "qk_scale_factor": 2.5,
    "output_multiplier": 0.4, "post_norm_eps": 1e-8,
    "rope_parameters": DEFAULT,
}  # fmt: skip
MUSE_TOWER: Mapping[str, Any] = {
    "image_token_id": 96, "video_token_id": 96, "out_hidden_size": 96, "projector_hidden_size": 32,
    "vision_config": {
        "num_hidden_layers": 1, "hidden_size": 24, "intermediate_size": 40,
        "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 2, "pos_emb_width": 2,
    },
}  # fmt: skip
HRM = {"H_cycles": 2, "L_cycles": 2, "num_key_value_heads": None, "rope_parameters": DEFAULT}
HY_V3 = {**EXPERTS, "num_shared_experts": 1, "router_scaling_factor": 2.8}
# Each row: see `EXPERT_CASES`.
AUTUMN_CASES: Sequence[tuple[Any, ...]] = (
    ("bailingmoe", IN_TORCH, {
        "ling": LING_1,
        "plain": {
            **LING_1, "norm_topk_prob": False, "tie_word_embeddings": True, "num_shared_experts": 1,
        },
    }),
    ("cohere2moe", "Cohere2MoeConfig", {
        "north": {**COHERE_MOE, "expert_selection_fn": "sigmoid", "num_shared_experts": 1},
        "alone": COHERE_MOE,
    }),
    ("deci", IN_TORCH, {
        "nemotron": NAS | {
            "block_configs": [
                _nas(2, 1.0), _nas(None, 8.5), _nas(1, 4.0), _nas(None, None),
                _nas(None, 2.0, linear=True),
            ],
        },
        "attention_alone": NAS | {"block_configs": [*[_nas(2, 1.0)] * 2, *[_nas(1, None)] * 3]},
        "deci": {
            "model_type": "deci", "rope_theta": 1e4, "num_key_value_heads": None,
            "num_key_value_heads_per_layer": [4, 2, 1], "tie_word_embeddings": True,
        },
    }),
    ("deepseek", IN_TORCH, {
        "deepseek": {
            "model_type": "deepseek", "first_k_dense_replace": 1, "norm_topk_prob": False,
            "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3,
            "moe_intermediate_size": 20, "moe_layer_freq": 1, "scoring_func": "softmax",
            "aux_loss_alpha": 0.001, "seq_aux": True, "rope_theta": 1e4,
        },
    }),
    ("deepseek32", "DeepseekV32Config", {
        "deepseek32": {
            **LATENT, "q_lora_rank": 18, "first_k_dense_replace": 1, "n_shared_experts": 1,
            "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "index_topk": 400,
            "index_head_dim": 64, "index_n_heads": 3,
        },
    }),
    ("glm-dsa", "GlmMoeDsaConfig", {
        "glm5": {
            **LATENT, "q_lora_rank": 18, "first_k_dense_replace": 2, "index_topk": 400,
            "index_head_dim": 64, "index_n_heads": 3, "tie_word_embeddings": True,
            "indexer_types": ["full", "shared", "full"],
        },
    }),
    ("laguna", "LagunaConfig", {
        "laguna": {**LAGUNA, "gating": True},
        "uniform": {
            **LAGUNA, "gating": "per-head", "num_attention_heads_per_layer": None,
            "tie_word_embeddings": True, "mlp_layer_types": ["dense", "dense", *["sparse"] * 3],
        },
    }),
    ("mimo2", "MiMoV2FlashConfig", {"flash": {**MIMO, "sliding_window": 40}}, MIMO_FILE),
    ("mimo2", "MiMoV2FlashConfig", {
        "saved": {
            **MIMO, "sliding_window": 33, "norm_topk_prob": False, "routed_scaling_factor": 2.5,
            "num_key_value_heads": 1, "mlp_layer_types": ["dense", "dense", "sparse", "sparse"],
        },
    }),
    ("phimoe", "PhimoeConfig", {
        "phimoe": PHI_MOE | {"router_jitter_noise": 0.2},
        "window": PHI_MOE | {
            "sliding_window": 40, "lm_head_bias": False, "attention_bias": False,
            "rope_parameters": DEFAULT,
        },
        "longrope": PHI_MOE | {
            "rope_parameters": LONGROPE | {
                "short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122,
                "original_max_position_embeddings": 400,
            },
        },
    }),
    ("hy_v3", "HYV3Config", {
        "hy3": {**HY_V3, "rope_parameters": DEFAULT},
        "shared": {
            **HY_V3, "num_shared_experts": 2, "tie_word_embeddings": True,
            "mlp_layer_types": ["dense", "dense", "sparse"],
        },
    }, {"first_k_dense_replace": 1, "qk_norm": True, "route_norm": True}),
    ("hrm_text", "HrmTextConfig", {
        "hrm": {**HRM, "num_hidden_layers": 1, "embedding_scale": 7.0},
        "layers": {**HRM, "num_hidden_layers": 2, "L_cycles": 1, "tie_word_embeddings": True},
    }),
    ("llama", "IQuestCoderConfig", {"iquestcoder": {"rope_parameters": DEFAULT}}),
    ("llama", "MinistralConfig", {
        "ministral": {
            "sliding_window": 40, "rope_parameters": DEFAULT,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    }),
    ("maincoder", IN_TORCH, {
        "maincoder": {"model_type": "maincoder", "rope_theta": 5000.0, "use_qk_norm": True},
        "tied": {"model_type": "maincoder", "rope_theta": 1e4, "tie_word_embeddings": True},
    }),
    ("maple", IN_TORCH, {
        "maple": {
            **EXPERTS, "model_type": "maple", "sliding_window": 40, "num_hidden_layers": 4,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"], "rope_theta": 5000.0,
            "partial_rotary_factor": 0.5, "nope_on_global_attention": True, "use_qk_norm": True,
            "use_bias": False, "quantize": True, "preaffine": False, "router_dtype": "fp32",
            "norm_topk_prob": True, "num_shared_experts": 0, "hidden_act": "silu",
            "head_dim": 16, "moe_router_enable_expert_bias": False,
        },
    }),
    ("mistral4", "Mistral4Config", {
        "mistral4": {
            **LATENT, "q_lora_rank": 18, "n_shared_experts": 1, "head_dim": 28,
            "rope_parameters": MINISTRAL_ROPE | {"partial_rotary_factor": 12 / 28},
        },
        "dense": {
            **LATENT, "q_lora_rank": 16, "first_k_dense_replace": 1, "norm_topk_prob": False,
            "routed_scaling_factor": 1.8, "tie_word_embeddings": True, "head_dim": 28,
            "rope_parameters": MINISTRAL_ROPE | {"partial_rotary_factor": 12 / 28},
        },
    }),
    ("nanbeige", IN_TORCH, {
        "nanbeige": {"model_type": "nanbeige", "rope_theta": 5000.0, "num_loops": 2},
        "thrice": {
            "model_type": "nanbeige", "rope_theta": 1e4, "num_loops": 3, "num_hidden_layers": 2,
            "skip_loop_final_norm": True, "tie_word_embeddings": True,
        },
    }),
    ("muse-glimmer", "MuseGlimmerConfig", {
        "glimmer": MUSE,
        "windows": {
            **MUSE, "final_logit_softcapping": 5.0, "num_key_value_heads": 4,
            "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
            "layer_rope_theta": [0, 5000.0, 5000.0, 5000.0, 0], "rms_norm_eps": 1e-4,
        },
    }, {}, MUSE_TOWER),
    ("pangu-embedded", "LlamaConfig", {
        "pangu": {"attention_bias": True, "tie_word_embeddings": True},
        "untied": {"attention_bias": True, "rope_parameters": DEFAULT},
    }, {"model_type": "PanguEmbedded"}),
    ("plm", IN_TORCH, {
        "plm": {
            "model_type": "plm", "hidden_act": "relu2", "num_key_value_heads": 4,
            "kv_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 12, "v_head_dim": 14,
            "q_lora_rank": None, "rope_theta": 5000.0, "tie_word_embeddings": True,
        },
    }),
    ("smallthinker", IN_TORCH, {
        "smallthinker": {
            **SMALLTHINKER, "rope_layout": [0, 1, 1, 1, 0], "tie_word_embeddings": True,
            "sliding_window_layout": [0, 1, 1, 1, 0], "moe_primary_router_apply_softmax": False,
        },
        "softmax": {
            **SMALLTHINKER, "rope_layout": [1] * 5, "sliding_window_layout": [0] * 5,
            "moe_primary_router_apply_softmax": True,
        },
    }),
    ("step35", "Step3p7Config", {"step": STEP}, {
        **STEP_FILE, "model_type": "step3p5", "text_config": None, "vision_config": None,
        "image_token_id": None,
    }, STEP_TOWER),
    ("step35", "Step3p7Config", {"beside": STEP}, {"text_config": STEP_FILE}, STEP_TOWER),
    ("spark2_5", IN_TORCH, {
        "spark": SPARK,
        "tied": {**SPARK, "tie_word_embeddings": True, "num_key_value_heads": 1},
    }),
)  # fmt: skip
