"""Tiny models with LayerNorm: see cases.py. Their files say no `rms_norm_eps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.case_arguments import COHERE, DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# llama.cpp's converter does not write another base of StableLM.
USUAL = {"rope_type": "default", "rope_theta": 1e4}
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
