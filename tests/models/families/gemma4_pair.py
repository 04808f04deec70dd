"""A small Gemma 4 and its assistant, of random weights, as Hugging Face folders and GGUF files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS
from tests.models.families.cases import random_tensors
from tests.models.families.gguf_files import (
    add_byte_vocabulary,
    add_config,
    write_gguf,
    written,
)
from tests.models.families.gguf_gemma import gemma4_keys
from tests.models.families.mtp_models import shapes_in_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

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
    "num_hidden_layers": 6, "num_kv_shared_layers": 3, "hidden_size_per_layer_input": 32,
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
    20: [99, 83, 208], 40: [178, 168, 94], 100: [103, 18, 151],
}  # fmt: skip
# The same of the pair with CLUSTERED tokens: three of 33 clusters are chosen.
CLUSTERED = 264
DRAFTED_IN_CLUSTERS: Mapping[int, list[int]] = {
    20: [129, 139, 82], 60: [205, 100, 144], 80: [46, 104, 130],
}  # fmt: skip
# What llama-server (llama.cpp of llama-cpp-python 0.3.36, `--spec-type draft-mtp`, caches in f32)
# answers to a prompt of the first 40 tokens, and drafts after each of the answer's tokens.
ANSWERED = [73, 73, 170, 57]
LLAMACPP = [[208, 115, 32], [94, 183, 213], [178, 60, 203], [249, 145, 188]]


def write_gemma4(folder: Path, **changes: Any) -> Path:
    """Write the model; returns the folder."""
    _write(folder, ARCHITECTURES["gemma4"], {**MODEL, **changes})
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_assistant(folder: Path) -> Path:
    """Write its assistant; returns the folder."""
    return _write(folder, ASSISTANTS["gemma4-assistant"], ASSISTANT)


def write_clustered(folder: Path) -> tuple[Path, Path]:
    """Write a model with CLUSTERED tokens and its assistant with clusters; returns both folders."""
    folder.mkdir()
    model = write_gemma4(
        folder / "model", vocab_size=CLUSTERED, vocab_size_per_layer_input=CLUSTERED
    )
    text = {**ASSISTANT["text_config"], "vocab_size": CLUSTERED}
    clusters = {"num_centroids": 33, "centroid_intermediate_top_k": 3}
    data = {**ASSISTANT, "text_config": text, "use_ordered_embeddings": True, **clusters}
    return model, _write(folder / "assistant", ASSISTANTS["gemma4-assistant"], data)


def _write(folder: Path, architecture: Any, data: Mapping[str, Any]) -> Path:
    folder.mkdir()
    config = architecture.from_hugging_face(data)
    shapes = shapes_in_folder(architecture, config)
    for name in [name for name in shapes if name.endswith("_projection.weight")]:
        if ".layers." not in name and ".per_layer" not in name:
            shapes[name.removeprefix("model.")] = shapes.pop(name)
    tensors = random_tensors(shapes)
    order: dict[str, NDArray[Any]] = {}
    for name in list(tensors):
        if name.endswith("layer_scalar"):
            tensors[name] = np.full(1, 0.9, np.float32)
        if name.endswith("token_ordering"):
            order[name] = np.random.default_rng(2).permutation(len(tensors.pop(name)))
    save_file({**tensors, **order}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(data))
    return folder


def write_gemma4_gguf(folder: Path) -> Path:
    """Write the model, also as a GGUF file; returns that file."""
    config = ARCHITECTURES["gemma4"].from_hugging_face(MODEL)
    return write_gguf(write_gemma4(folder), "gemma4", config, special=("<eos>",))


def write_assistant_gguf(folder: Path) -> Path:
    """Write its assistant, also as a GGUF file; returns that file."""
    source = SafetensorsSource(write_assistant(folder))
    config = ASSISTANTS["gemma4-assistant"].from_hugging_face(ASSISTANT)
    writer = gguf.GGUFWriter(folder / "model.gguf", "gemma4-assistant")
    add_config(writer, "gemma4-assistant", config)
    add_byte_vocabulary(writer, ("<eos>",))
    keys = {
        **gemma4_keys(config),
        "attention.shared_kv_layers": config.layers,
        "embedding_length_out": config.backbone,
        "nextn_predict_layers": config.layers,
    }
    for key, value in keys.items():
        kind = gguf.GGUFValueType.get_type(value)
        writer.add_key_value(f"gemma4-assistant.{key}", value, kind)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, config.layers)
    projections = {
        "pre_projection.weight": "nextn.pre_projection.weight",
        "post_projection.weight": "nextn.post_projection.weight",
    }
    for name in source.names():
        named = f"{name}.weight" if name.endswith("layer_scalar") else name
        stored = projections.get(name) or names.get_name(named, try_suffixes=(".weight",))
        assert stored is not None, name
        writer.add_tensor(stored, source.read(name))
    writer.add_tensor("rope_freqs.weight", np.array(config.rope_divisors, np.float32))
    return written(writer, folder / "model.gguf")
