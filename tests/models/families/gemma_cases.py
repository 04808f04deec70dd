"""Tiny models of Gemma: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import GEMMA3N, GEMMA4

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Each row: the architecture, the configuration's class in transformers, its arguments by case.
GEMMA_CASES: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("gemma", "GemmaConfig", {
        "gemma": {},
        "one_group": {"num_key_value_heads": 1},
    }),
    ("gemma2", "Gemma2Config", {
        "gemma2": {"sliding_window": 48, "query_pre_attn_scalar": 12},
        "uncapped": {
            "sliding_window": 30, "attn_logit_softcapping": None, "query_pre_attn_scalar": 20,
            "final_logit_softcapping": None,
        },
    }),
    ("gemma3n", "Gemma3nTextConfig", {
        "gemma3n": {
            **GEMMA3N, "num_hidden_layers": 7, "num_kv_shared_layers": 3,
            "layer_types": [*["sliding_attention", "full_attention"] * 3, "full_attention"],
            "intermediate_size": [56, 56, 60, 60, 64, 64, 64],
            "activation_sparsity_pattern": [0.95, 0.9, 0.6, *[0.0] * 4],
        },
        "unshared": {
            **GEMMA3N, "num_hidden_layers": 5, "num_kv_shared_layers": 0,
            "num_key_value_heads": 1, "vocab_size_per_layer_input": 90,
        },
    }),
    ("gemma4", "Gemma4TextConfig", {
        "gemma4": {
            **GEMMA4, "num_hidden_layers": 7, "num_kv_shared_layers": 3, "head_dim": 4,
            "layer_types": [
                *["sliding_attention", "sliding_attention", "full_attention"] * 2,
                "full_attention",
            ],
            "use_double_wide_mlp": True, "final_logit_softcapping": 30.0,
        },
        "unshared": {
            **GEMMA4, "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional", "partial_rotary_factor": 0.5,
                    "rope_theta": 1e5,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            },
        },
    }),
    ("gemma4-moe", "Gemma4TextConfig", {
        "experts": {
            **GEMMA4, "hidden_size_per_layer_input": 0, "num_hidden_layers": 4,
            "num_key_value_heads": 2, "head_dim": 6, "enable_moe_block": True,
            "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 20,
            "attention_k_eq_v": True, "num_global_key_value_heads": 1,
            "final_logit_softcapping": 30.0,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    }),
    ("gemma4", "Gemma4UnifiedTextConfig", {
        "equal": {
            "sliding_window": 48, "global_head_dim": 8, "head_dim": 6, "num_hidden_layers": 5,
            "num_key_value_heads": 4, "num_global_key_value_heads": 1,
            "attention_k_eq_v": True, "final_logit_softcapping": 30.0,
            "layer_types": [*["sliding_attention", "full_attention"] * 2, "full_attention"],
        },
    }),
)  # fmt: skip
