"""The names that llama.cpp's converter gives tensors, beside those that the gguf package has."""

from __future__ import annotations

# Architectures that the gguf package does not know, and those whose names of tensors they have.
NAMED_AS = {
    "bailingmoe3": "kimi-linear", "cohere2moe": "dots1", "deepseek32": "deepseek2",
    "granite_swa": "granite", "hrm_text": "afmoe", "hy_v3": "dots1", "laguna": "dots1",
    "maple": "qwen3moe", "mellum": "qwen3moe", "muse-glimmer": "afmoe", "nanbeige": "llama",
    "spark2_5": "qwen3",
}  # fmt: skip
# As convert_hf_to_gguf.py renames parts of a layer before it looks up their names.
RENAMED_PARTS = {
    "block_sparse_moe.experts.w1": "mlp.experts.gate_proj",
    "block_sparse_moe.experts.w2": "mlp.experts.down_proj",
    "block_sparse_moe.experts.w3": "mlp.experts.up_proj",
    "feed_forward.experts.w1": "mlp.experts.gate_proj",
    "feed_forward.experts.w2": "mlp.experts.down_proj",
    "feed_forward.experts.w3": "mlp.experts.up_proj",
    "moe.router_bias": "exp_probs_b.bias",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "mlp.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.expert_bias": "exp_probs_b.bias",
    "mlp.gate.expert_bias": "exp_probs_b.bias",
    "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.experts.up_proj.weight": "ffn_up_exps.weight",
    "mixer.experts.down_proj.weight": "ffn_down_exps.weight",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "self_attn.attention_sink_bias": "attn_sinks.weight",
    "self_attn.g_proj": "attn_gate",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_k_v_proj": "attn_qkv",
}
# Names that have no entry in the map of the gguf package.
OWN_NAMES = (
    "exp_probs_b.bias",
    "_exps.weight",
    "_inp.weight",
    "_sinks.weight",
    "_shexp.weight",
    ".scale",
    "attn_gate.weight",
    "attn_output.weight",
    "attn_qkv.weight",
    "lerp_fused.weight",
    "hrm.z_l_init",
)
