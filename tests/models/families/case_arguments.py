"""Arguments of tiny models that several cases share."""

from __future__ import annotations

from typing import Any

LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
DEFAULT = {"rope_type": "default", "rope_theta": 5000.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
# As in Ministral 3, whose queries grow beyond each 64 positions here.
MINISTRAL_ROPE = YARN | {
    "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0,
    "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
}  # fmt: skip
GEMMA3N = {
    "sliding_window": 48, "vocab_size_per_layer_input": 97, "hidden_size_per_layer_input": 16,
    "laurel_rank": 10,
}  # fmt: skip
GEMMA4 = {
    "sliding_window": 48, "vocab_size_per_layer_input": 97, "global_head_dim": 8,
    "hidden_size_per_layer_input": 16,
}  # fmt: skip
EXPERTS = {"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 20}

# Of a text, the three positions of a token are equal.
MROPE = DEFAULT | {"mrope_section": [2, 2, 2]}
IGNORED_TOWER = {
    "image_token_id": 96, "video_token_id": 96, "vision_start_token_id": 96,
    "vision_end_token_id": 96,
    "vision_config": {
        "depth": 2, "hidden_size": 24, "intermediate_size": 40, "num_heads": 3, "patch_size": 4,
        "out_hidden_size": 48, "deepstack_visual_indexes": [0], "fullatt_block_indexes": [1],
    },
}  # fmt: skip
LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 12,
    "v_head_dim": 14, "n_routed_experts": 7, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "moe_intermediate_size": 20, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT_MINICPM = {
    "num_key_value_heads": 4, "kv_lora_rank": 20, "q_lora_rank": 18, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 12, "v_head_dim": 14,
}  # fmt: skip
# Granite's multipliers of a model with three layers, and the keys that say them in MiniCPM.
AS_MINICPM = {
    "embedding_multiplier": 12.0, "attention_multiplier": 12**-0.5, "tie_word_embeddings": True,
    "residual_multiplier": 1.4 / 3**0.5, "logits_scaling": 4.0,
}  # fmt: skip
MINICPM = {
    "model_type": "minicpm", "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 12,
    "embedding_multiplier": None, "attention_multiplier": None, "residual_multiplier": None,
    "logits_scaling": None,
}  # fmt: skip
# Architectures that transformers does not have: it computes them as Llama.
OTHER_LLAMAS: dict[str, dict[str, dict[str, Any]]] = {
    "baichuan": {"baichuan": {"num_key_value_heads": 4}},
    "internlm2": {"internlm2": {"rope_parameters": DEFAULT | {"rope_theta": 1e6}}},
    "xverse": {"xverse": {}},
}
MINIMAX = {
    "num_local_experts": 7, "num_experts_per_tok": 3,
    "rope_parameters": DEFAULT | {"partial_rotary_factor": 2 / 3},
}  # fmt: skip
MINIMAX_FILE = {
    "rope_parameters": None, "rope_theta": 5000.0, "rotary_dim": 8, "scoring_func": "sigmoid",
    "attn_type_list": [1, 1, 1], "mtp_transformer_layers": 1, "num_mtp_modules": 3,
    "qk_norm_type": "per_layer", "shared_intermediate_size": 0, "use_mtp": True,
    "use_qk_norm": True, "use_routing_bias": True,
}  # fmt: skip
COHERE = {"logit_scale": 0.25, "layer_norm_eps": 1e-3}
CORRECTED = {
    "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
AFMOE = {
    **EXPERTS, "num_experts_per_tok": 3, "num_shared_experts": 1, "num_dense_layers": 1,
    "route_scale": 2.8, "mup_enabled": True, "sliding_window": 40,
}  # fmt: skip
K_EXAONE = {
    **EXPERTS, "sliding_window": 45, "num_shared_experts": 1, "routed_scaling_factor": 2.5,
    "num_hidden_layers": 5,
}  # fmt: skip
LLAMA4 = {
    "num_local_experts": 5, "num_experts_per_tok": 1, "intermediate_size": 20,
    "intermediate_size_mlp": 56, "num_hidden_layers": 4,
}  # fmt: skip
# As of Scout: no frequency is between the two.
SCOUT_ROPE = LLAMA3 | {"low_freq_factor": 1.0, "high_freq_factor": 1.0}
LING = {
    "moe_intermediate_size": 20, "num_experts": 12, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "num_shared_experts": 1, "first_k_dense_replace": 1, "rope_theta": 5000.0,
    "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5, "norm_topk_prob": True,
    "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "use_qk_norm": True,
}  # fmt: skip
# The names of keys that EXAONE 3.5 shares with GPT-2.
EXAONE = {
    "activation_function": "silu", "layer_norm_epsilon": 1e-5, "num_layers": 3, "hidden_act": None,
    "rms_norm_eps": None, "num_hidden_layers": None,
}  # fmt: skip
ERNIE_EXPERTS = {"moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 20}
MULTIPLIERS = {
    "embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.22,
    "logits_scaling": 4.0,
}  # fmt: skip
GPT_OSS = {
    "num_local_experts": 7, "num_experts_per_tok": 3, "num_hidden_layers": 4, "sliding_window": 40,
    "rope_parameters": YARN | {"truncate": False, "rope_theta": 1.5e5, "beta_fast": 4.0},
}  # fmt: skip
GPT_OSS_PLAIN = {
    "num_local_experts": 5, "num_experts_per_tok": 1, "swiglu_limit": 1.5,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "sliding_window": 33, "num_key_value_heads": 1,
}  # fmt: skip
