"""Small Llamas of random weights with one vocabulary, as Hugging Face folders and GGUF files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.models.catalog import ARCHITECTURES
from tests.models.families.cases import random_tensors
from tests.models.families.gguf_files import write_gguf
from tests.models.families.mtp_models import shapes_in_folder

if TYPE_CHECKING:
    from pathlib import Path

LARGE, SMALL = 128, 64  # widths
# What the AssistedCandidateGenerator of transformers 5.24 drafts with the small model after the
# first FIRST + 1, FIRST + 2, ... of the tokens default_rng(0).integers(0, 256, 300), in f32.
DRAFTED = [
    [129, 66, 16], [187, 194, 165], [1, 225, 7], [71, 113, 91],
    [71, 113, 64], [170, 80, 38], [227, 200, 21], [62, 227, 141],
]  # fmt: skip
FIRST = 20


def llama_config(hidden: int) -> dict[str, Any]:
    """The config.json of a model with two layers of a width, a multiple of 32."""
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
        "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": hidden // 32,
        "num_key_value_heads": hidden // 64, "head_dim": 32, "vocab_size": 257,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": 256,
    }  # fmt: skip


def write_llama(folder: Path, hidden: int) -> Path:
    """Write a model; returns the folder."""
    folder.mkdir()
    architecture, data = ARCHITECTURES["llama"], llama_config(hidden)
    config = architecture.from_hugging_face(data)
    tensors = random_tensors(shapes_in_folder(architecture, config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(data))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_llama_gguf(folder: Path, hidden: int) -> Path:
    """Write a model, also as a GGUF file; returns that file."""
    config = ARCHITECTURES["llama"].from_hugging_face(llama_config(hidden))
    return write_gguf(write_llama(folder, hidden), "llama", config, special=("<eos>",))
