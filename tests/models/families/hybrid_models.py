"""Small models of random weights with recurrent layers, as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.models.catalog import ARCHITECTURES
from tests.models.families.cases import random_tensors
from tests.models.families.gguf_files import write_gguf
from tests.models.families.mtp_models import shapes_in_folder

_SHAPE: dict[str, Any] = {
    "num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 2048, "vocab_size": 257,
    "rms_norm_eps": 1e-6, "eos_token_id": 256, "tie_word_embeddings": True,
}  # fmt: skip
_GRANITE: dict[str, Any] = {
    **_SHAPE, "model_type": "granitemoehybrid", "shared_intermediate_size": 192,
    "mamba_n_heads": 16, "mamba_d_head": 16, "mamba_d_state": 32, "mamba_n_groups": 2,
    "position_embedding_type": "nope", "layer_types": ["mamba", "mamba", "attention", "mamba"],
    "residual_multiplier": 0.5, "attention_multiplier": 0.1, "embedding_multiplier": 4.0,
    "logits_scaling": 2.0,
}  # fmt: skip
_NEMOTRON: dict[str, Any] = {
    **_SHAPE, "model_type": "nemotron_h", "mamba_num_heads": 12, "mamba_head_dim": 16,
    "n_groups": 2, "ssm_state_size": 32,
}  # fmt: skip
_QWEN: dict[str, Any] = {
    **_SHAPE, "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
_EXPERTS: dict[str, Any] = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
}  # fmt: skip
# By architecture: config.json.
CONFIGS: dict[str, dict[str, Any]] = {
    "falcon-h1": {
        **_SHAPE, "model_type": "falcon_h1", "mamba_n_heads": 12, "mamba_d_head": 16,
        "mamba_d_ssm": 192, "mamba_d_state": 16, "mamba_norm_before_gate": False,
        "ssm_multipliers": [1.0, 0.5, 1.0, 1.0, 0.7], "mlp_multipliers": [0.9, 1.0],
        "key_multiplier": 0.5,
    },
    "granitehybrid": {**_GRANITE, "num_local_experts": 0},
    "granitehybrid-moe": {**_GRANITE, "num_local_experts": 6, "num_experts_per_tok": 2},
    "jamba": {
        **_SHAPE, "model_type": "jamba", "num_attention_heads": 2, "num_key_value_heads": 1,
        "attn_layer_period": 3,
        "attn_layer_offset": 1, "num_experts": 1, "mamba_dt_rank": 32,
    },
    "kimi-linear": {
        **_SHAPE, "model_type": "kimi_linear", "num_key_value_heads": 4, "linear_num_heads": 4,
        "linear_head_dim": 32, "kv_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
        "v_head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 64, "first_k_dense_replace": 1, "tie_word_embeddings": False,
        "layer_types": [
            "linear_attention", "linear_attention", "full_attention", "linear_attention",
        ],
    },
    "mamba": {
        "model_type": "mamba", "state_size": 16, "intermediate_size": 256, "time_step_rank": 32,
        "num_hidden_layers": 4, "hidden_size": 128, "vocab_size": 257, "eos_token_id": 256,
    },
    "mamba2": {
        "model_type": "mamba2", "num_heads": 16, "head_dim": 16,
        "n_groups": 2, "state_size": 32, "num_hidden_layers": 4, "hidden_size": 128,
        "vocab_size": 257, "eos_token_id": 256, "tie_word_embeddings": True,
    },
    "nemotron_h": {**_NEMOTRON, "layers_block_type": ["mamba", "mlp", "attention", "mamba"]},
    "nemotron_h_moe": {
        **_NEMOTRON, "layers_block_type": ["mamba", "moe", "attention", "mamba"],
        "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "moe_shared_expert_intermediate_size": 96, "routed_scaling_factor": 2.5,
    },
    "qwen35": {**_QWEN, "model_type": "qwen3_5_text"},
    "qwen35moe": {**_QWEN, **_EXPERTS, "model_type": "qwen3_5_moe_text"},
    "qwen3next": {**_QWEN, **_EXPERTS, "model_type": "qwen3_next"},
}  # fmt: skip
# What llama.cpp predicts after READ_BY_LLAMACPP tokens of TEXT: see tests/golden/record_hybrids.py.
LLAMACPP = Path(__file__).parents[2] / "golden" / "hybrids_llamacpp.json"
READ_BY_LLAMACPP = (60, 150, 237, 300)
TEXT = np.random.default_rng(0).integers(0, 256, 300).tolist()


def write_model(folder: Path, name: str, **changes: int) -> Path:
    """Write a model of random weights as a Hugging Face folder, with changes of its configuration.

    Returns the folder.
    """
    folder.mkdir()
    architecture, described = ARCHITECTURES[name], {**CONFIGS[name], **changes}
    config = architecture.from_hugging_face(described)
    save_file(random_tensors(shapes_in_folder(architecture, config)), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_hybrid_gguf(folder: Path, name: str) -> Path:
    """Write the model also as a GGUF file in f32, with bytes as tokens; returns its path."""
    config = ARCHITECTURES[name].from_hugging_face(CONFIGS[name])
    return write_gguf(write_model(folder, name), name, config, ["<eos>"])
