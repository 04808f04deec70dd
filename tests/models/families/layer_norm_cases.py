"""Tiny models with LayerNorm: see cases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import COHERE, DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# llama.cpp's converter does not write another base of StableLM.
USUAL = {"rope_type": "default", "rope_theta": 1e4}
# llama.cpp's converter writes no other numbers of MLPs and key/value heads.
PHI = {"intermediate_size": 192, "num_key_value_heads": 4}
# Keys of `SMALL` that files do not have, by architecture; "" for the others.
_UNSAID: Mapping[str, tuple[str, ...]] = {
    "": ("rms_norm_eps",),
    "falcon": ("intermediate_size", "num_key_value_heads", "rms_norm_eps"),
    "gpt2": ("head_dim", "intermediate_size", "num_key_value_heads", "rms_norm_eps"),
    "orion": (
        "hidden_dropout", "layer_norm_eps", "partial_rotary_factor", "qk_layernorm",
        "use_parallel_residual", "use_qkv_bias",
    ),
}  # fmt: skip


def published_keys(architecture: str) -> dict[str, Any]:
    """`Case.published` of an architecture."""
    keys: dict[str, Any] = dict.fromkeys(_UNSAID.get(architecture, _UNSAID[""]))
    if architecture == "orion":  # transformers computes it as StableLM
        keys |= {"model_type": "orion", "rms_norm_eps": 1e-3, "rope_parameters": USUAL}
    return keys


# Each row: the architecture, the configuration's class in transformers, its arguments by case.
LAYER_NORM_CASES: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("command-r", "CohereConfig", {
        "command_r": COHERE,
        "bias": {**COHERE, "attention_bias": True, "rope_parameters": DEFAULT},
    }),
    ("cohere2", "Cohere2Config", {
        "full": {**COHERE, "layer_types": ["full_attention"] * 3},
        "cohere2": {**COHERE, "num_hidden_layers": 5, "sliding_window": 45},
    }),
    ("gptneox", "GPTNeoXConfig", {
        "gptneox": {
            "layer_norm_eps": 1e-3, "num_key_value_heads": 4,
            "rope_parameters": USUAL | {"partial_rotary_factor": 2 / 3},
        },
        "sequential": {
            "layer_norm_eps": 1e-3, "use_parallel_residual": False, "num_key_value_heads": 4,
            "rope_parameters": USUAL | {"partial_rotary_factor": 1 / 3},
        },
    }),
    ("falcon", "FalconConfig", {
        "grouped": {
            "layer_norm_epsilon": 1e-3, "new_decoder_architecture": True, "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1, "rope_parameters": USUAL,
            "ffn_hidden_size": 192,
        },
        "falcon": {"layer_norm_epsilon": 1e-3, "rope_parameters": USUAL},
    }),
    ("gpt2", "GPT2Config", {"gpt2": {"layer_norm_epsilon": 1e-3}}),
    ("jais2", "Jais2Config", {"jais2": {"layer_norm_eps": 1e-3}}),
    ("olmo", "OlmoConfig", {
        "clipped": {"clip_qkv": 0.9},
        "olmo": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    }),
    ("orion", "StableLmConfig", {
        "orion": {
            "layer_norm_eps": 1e-3, "rope_parameters": USUAL | {"partial_rotary_factor": 1.0},
        },
    }),
    ("phi2", "PhiConfig", {
        "phi2": {
            **PHI, "layer_norm_eps": 1e-3,
            "rope_parameters": USUAL | {"partial_rotary_factor": 1 / 3},
        },
    }),
    ("starcoder2", "Starcoder2Config", {
        "window": {"norm_epsilon": 1e-3, "sliding_window": 40, "tie_word_embeddings": False},
        "starcoder2": {"norm_epsilon": 1e-3},
    }),
    ("stablelm", "StableLmConfig", {
        "zephyr": {
            "layer_norm_eps": 1e-3, "rope_parameters": USUAL | {"partial_rotary_factor": 1 / 3},
        },
        "stablelm": {
            "layer_norm_eps": 1e-3, "use_qkv_bias": True, "tie_word_embeddings": True,
            "rope_parameters": USUAL | {"partial_rotary_factor": 2 / 3},
        },
    }),
    ("nemotron", "NemotronConfig", {
        "nemotron": {"norm_eps": 1e-3},
        "biases": {"norm_eps": 1e-3, "attention_bias": True, "mlp_bias": True},
    }),
)  # fmt: skip
