"""Tiny models of families of 2021 to 2024: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Keys of `SMALL` that GPT-2's later kin does not have.
_UNSAID: Mapping[str, Any] = dict.fromkeys(
    ("head_dim", "intermediate_size", "num_key_value_heads", "rms_norm_eps")
)
# What Qwen's files say of the model that transformers computes as Qwen2.
_QWEN: Mapping[str, Any] = {
    "model_type": "qwen", "intermediate_size": 112, "kv_channels": 12, "layer_norm_epsilon": 1e-5,
    "rotary_emb_base": 5000.0, "rotary_pct": 1.0, "no_bias": True, "seq_length": 512,
    "use_dynamic_ntk": True, "use_logn_attn": True,
    **dict.fromkeys((
        "head_dim", "hidden_act", "layer_types", "max_window_layers", "num_key_value_heads",
        "rms_norm_eps", "rope_parameters", "sliding_window", "use_sliding_window",
    )),
}  # fmt: skip
# Two layers of other shapes.
_OPENELM: Mapping[str, Any] = {
    "model_dim": 48, "head_dim": 12, "num_transformer_layers": 2, "num_query_heads": [2, 4],
    "num_kv_heads": [1, 2], "ffn_multipliers": [0.5, 1.5], "ffn_dim_divisor": 8,
    "ffn_with_glu": True, "max_context_length": 512, "rope_freq_constant": 5000,
    "share_input_output_layers": True, "normalize_qk_projections": True, "num_gqa_groups": 2,
    "activation_fn_name": "swish", "normalization_layer_name": "rms_norm", "vocab_size": 97,
    "qkv_multipliers": [0.5, 1.0], "rope_max_length": 1024,
}  # fmt: skip

# Each row: the architecture, the configuration's class in transformers, its arguments by case, and
# `published` of its cases.
OLDER_CASES: Sequence[tuple[Any, ...]] = (
    ("bloom", "BloomConfig", {
        "bloom": {"layer_norm_epsilon": 1e-3, "num_attention_heads": 4},
        "six": {"num_attention_heads": 6, "hidden_size": 48},
    }, {**_UNSAID, "max_position_embeddings": None, "seq_length": 512}),
    ("mpt", "MptConfig", {
        "mpt": {"layer_norm_epsilon": 1e-5, "max_seq_len": 512},
        "clipped": {
            "layer_norm_epsilon": 1e-5, "max_seq_len": 512,
            "attn_config": {"clip_qkv": 0.9},
        },
    }, {**_UNSAID, "max_position_embeddings": None}),
    ("gptj", "GPTJConfig", {"gptj": {"layer_norm_epsilon": 1e-3, "rotary_dim": 8}}, _UNSAID),
    ("openelm", "OpenELMConfig", {"openelm": _OPENELM}),
    ("qwen", "Qwen2Config", {
        "qwen": {
            "num_key_value_heads": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        },
    }, _QWEN),
    ("refact", "GPTRefactConfig", {
        "refact": {
            "n_embd": 48, "n_head": 4, "n_layer": 2, "n_inner": None, "n_positions": 512,
            "layer_norm_epsilon": 1e-3, "multi_query": True, "vocab_size": 97,
        },
    }),
    ("starcoder", "GPTBigCodeConfig", {
        "exact": {"layer_norm_epsilon": 1e-3, "activation_function": "gelu"},
        "starcoder": {"layer_norm_epsilon": 1e-3},
    }, _UNSAID),
)  # fmt: skip
