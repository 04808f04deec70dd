"""Small models of Qwen3.5 with a layer that predicts further tokens, as Hugging Face folders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.models.catalog import ARCHITECTURES
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.drafting.mtp import MtpConfig

_SHAPE: Mapping[str, Any] = {
    "num_hidden_layers": 2, "full_attention_interval": 2, "hidden_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 257,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "eos_token_id": 256,
    "tie_word_embeddings": False, "linear_num_key_heads": 8, "linear_num_value_heads": 8,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "qwen35": {**_SHAPE, "model_type": "qwen3_5_text", "intermediate_size": 192},
    "qwen35moe": {
        **_SHAPE, "model_type": "qwen3_5_moe_text", "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96,
    },
}  # fmt: skip
# How much the layers of a model whose drafts are right change a hidden state.
_LITTLE = 0.002


def shapes_in_folder(architecture: Architecture[Any], config: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's tensors in a Hugging Face folder."""
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter, tensor in architecture.model(config).parameters().items():
        stored = architecture.tensors.find(config, parameter, (), gguf=False).name
        for group in architecture.tensors.grouped:
            for part in dict.fromkeys(group.parts):
                module = part.rpartition(".")[2]
                for mixer in ("linear_attn", "self_attn"):
                    stored = stored.replace(f"{mixer}.{module}.", f"{group.folder}.")
        is_transposed = parameter.endswith(architecture.tensors.transposed_in_folder)
        rows, *columns = tensor.shape[::-1] if is_transposed else tensor.shape
        if parameter.endswith("k_b_proj.weight"):  # each head's matrix is transposed
            rows, columns = tensor.type.size // config.latent, [config.latent]
        if "conv1d.weight" in parameter:
            columns = [1, *columns]
        if re.search(r"\.experts\.[a-z]|\.output_linear\.", stored):
            rows, columns = config.experts, [rows // config.experts, *columns]
        experts = config.experts if "*" in stored else 1
        for number in range(experts):
            name = stored.replace("*", str(number))
            together = shapes.get(name, (0,))[0]  # rows of another part of a group
            shapes[name] = (together + rows // experts, *columns)
    return shapes


def config_with_mtp(name: str) -> MtpConfig:
    """The configuration of a model with the layer."""
    config: MtpConfig = ARCHITECTURES[name].from_hugging_face(CONFIGS[name])
    return replace(config, mtp=True)


def write_mtp_model(folder: Path, name: str = "qwen35", *, right: bool = False) -> Path:
    """Write a model of random weights; returns the folder.

    right  whether drafts are the model's tokens, because both depend almost only on the latest one
    """
    folder.mkdir()
    tensors = random_tensors(shapes_in_folder(ARCHITECTURES[name], config_with_mtp(name)))
    if right:
        _make_right(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _make_right(tensors: dict[str, NDArray[np.float32]]) -> None:
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight")):
            tensors[name] *= _LITTLE
    width = tensors["mtp.norm.weight"].size
    tensors["mtp.fc.weight"][:, :width] = np.eye(width)
    tensors["mtp.fc.weight"][:, width:] *= _LITTLE
    tensors["mtp.pre_fc_norm_embedding.weight"][:] = 0  # multiplies by 1 + w
    tensors["mtp.norm.weight"] = tensors["model.norm.weight"].copy()


def add_predicting_layer(path: Path, config: Mapping[str, Any]) -> None:
    """Add a layer that predicts further tokens, of the shapes of the first one with attention."""
    tensors, hidden = load_file(path), config["hidden_size"]
    layer = f"model.layers.{config['layer_types'].index('full_attention')}."
    same = {name.removeprefix(layer): tensors[name] for name in tensors if name.startswith(layer)}
    tensors |= {f"mtp.layers.0.{name}": values.copy() for name, values in same.items()}
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{norm}.weight"] = np.ones(hidden, np.float32)
    tensors["mtp.fc.weight"] = np.ones((hidden, 2 * hidden), np.float32)
    save_file(tensors, path, metadata={"format": "pt"})
