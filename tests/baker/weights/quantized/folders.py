"""A small Llama as a quantized folder, and the same weights as a plain folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from hearthd.models.catalog import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.config import ModelConfig
    from tests.baker.weights.quantized.packing_cases import Case

    Array = NDArray[Any]

TENSORS = "model.safetensors"
LLAMA = ARCHITECTURES["llama"]
CONFIG = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip


def config() -> ModelConfig:
    result: ModelConfig = LLAMA.from_hugging_face(CONFIG)
    return result


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The two folders, the tensors of the quantized one, and the tensors of the plain one."""

    quantized: Path
    plain: Path
    stored: dict[str, Array]
    values: dict[str, Array]


def write_folders(case: Case, folder: Path) -> Folders:
    """Write both. The matrices of layers are quantized; embeddings, the head and norms are not."""
    rng = np.random.default_rng(0)
    stored: dict[str, Array] = {}
    values: dict[str, Array] = {}
    for parameter, tensor in LLAMA.model(config()).parameters().items():
        name = LLAMA.tensors.find(config(), parameter, (), gguf=False).name
        if name.endswith("_proj.weight"):
            packed = case.pack(rng, *tensor.shape)
            module = name.removesuffix(".weight")
            stored |= {f"{module}.{part}": array for part, array in packed.tensors.items()}
            values[name] = packed.values
        else:
            # Embeddings and the head are integers of 8 bits, so that native keeps them, too.
            integers = rng.integers(-126, 127, tensor.shape)
            integers[..., ::32] = 127
            scale = 2.0**-7 if "norm" in name else 2.0**-11
            values[name] = stored[name] = (integers * scale).astype(np.float32)
    quantized = folder / "quantized"
    write(quantized, stored, CONFIG | {"quantization_config": case.settings})
    write(folder / "plain", values, CONFIG)
    return Folders(quantized=quantized, plain=folder / "plain", stored=stored, values=values)


def change_tensors(folders: Folders, changes: Mapping[str, Array | None]) -> None:
    """Add, replace or, for None, remove tensors of the quantized folder."""
    tensors = {**folders.stored, **changes}
    stored = {name: array for name, array in tensors.items() if array is not None}
    save_file(stored, folders.quantized / TENSORS)


def change_settings(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change keys of the quantization_config of a folder."""
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    settings["quantization_config"] |= changes
    path.write_text(json.dumps(settings))


def write(folder: Path, tensors: dict[str, Array], settings: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / TENSORS)
    (folder / "config.json").write_text(json.dumps(settings))
