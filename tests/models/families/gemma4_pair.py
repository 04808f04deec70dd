"""A small Gemma 4 and its assistant, of random weights, as Hugging Face folders and GGUF files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS
from tests.models.families.cases import random_tensors
from tests.models.families.mtp_models import shapes_in_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHAPE: Mapping[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 257, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 32, "per_layer_config": {"2": {"head_dim": 64}},
    "sliding_window": 64, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
    "eos_token_id": 256, "bos_token_id": None, "pad_token_id": 0, "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh", "use_double_wide_mlp": False,
    "rope_parameters": {
        "full_attention": {
            "partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional",
        },
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
}  # fmt: skip
_KINDS = ("sliding_attention", "sliding_attention", "full_attention")
MODEL: Mapping[str, Any] = {
    **_SHAPE, "architectures": ["Gemma4ForCausalLM"], "hidden_size": 128, "intermediate_size": 192,
    "num_hidden_layers": 6, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 257, "layer_types": [*_KINDS, *_KINDS],
    "per_layer_config": {str(i): {"head_dim": 64} for i in (2, 5)},
    "final_logit_softcapping": 30.0,
}  # fmt: skip
ASSISTANT: Mapping[str, Any] = {
    "model_type": "gemma4_assistant", "architectures": ["Gemma4AssistantForCausalLM"],
    "backbone_hidden_size": 128, "use_ordered_embeddings": False, "num_centroids": 2048,
    "centroid_intermediate_top_k": 32, "tie_word_embeddings": True,
    "text_config": {
        **_SHAPE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_kv_shared_layers": 3, "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0, "layer_types": list(_KINDS),
    },
}  # fmt: skip
# By the length of a prompt of the tokens default_rng(0).integers(0, 256, 300): what transformers
# 5.24 (`SinglePositionMultiTokenCandidateGenerator`) drafts after it and the next token, in f32.
# The longer ones with the keys of a window that the model's cache holds after a decode; after a
# prompt, transformers has the assistant see one key more.
DRAFTED: Mapping[int, list[int]] = {
    20: [41, 58, 251], 27: [251, 129, 131], 40: [87, 71, 80], 90: [86, 154, 251],
    150: [178, 27, 232],
}  # fmt: skip


def write_gemma4(folder: Path) -> Path:
    """Write the model; returns the folder."""
    _write(folder, ARCHITECTURES["gemma4"], MODEL)
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_assistant(folder: Path) -> Path:
    """Write its assistant; returns the folder."""
    return _write(folder, ASSISTANTS["gemma4-assistant"], ASSISTANT)


def _write(folder: Path, architecture: Any, data: Mapping[str, Any]) -> Path:
    folder.mkdir()
    config = architecture.from_hugging_face(data)
    tensors = random_tensors(shapes_in_folder(architecture, config))
    for name in tensors:
        if name.endswith("layer_scalar"):
            tensors[name] = np.full(1, 0.9, np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(data))
    return folder
