"""Tiny adapters as PEFT writes them, and as GGUF files, and a bundle's places for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from hearthd.bundle import AdapterArray, AdapterMatrix, AdapterPlaces
from hearthd.bundle.lora.adapter_folder import PREFIX, TENSORS
from hearthd.bundle.lora.adapter_settings import CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULE, ROWS, COLUMNS, RANK = "model.layers.0.mlp.up_proj", 20, 8, 4
TENSOR = "blk.0.ffn_up.weight"  # the module in GGUF files
# Of a bundle that has no names of GGUF tensors.
OLD_PLACES = AdapterPlaces(
    count=2,
    rank=RANK,
    arrays=(
        AdapterArray(name="a", shape=(2, RANK, COLUMNS), dtype="f16"),
        AdapterArray(name="b", shape=(2, 2, RANK, 16), dtype="f16"),
    ),
    matrices=(
        AdapterMatrix(
            module=MODULE, rows=ROWS, columns=COLUMNS, down=0, first_term=0, up=1, first_block=0
        ),
    ),
)
PLACES = replace(
    OLD_PLACES,
    gguf_architecture="llama",
    matrices=tuple(replace(matrix, gguf=TENSOR) for matrix in OLD_PLACES.matrices),
)
A, B = (f"{PREFIX}{MODULE}.{factor}.weight" for factor in ("lora_A", "lora_B"))


def tensors(seed: int, rank: int = RANK) -> dict[str, Any]:
    """Random factors."""
    rng = np.random.default_rng(seed)
    shapes = {A: (rank, COLUMNS), B: (ROWS, rank)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write(
    folder: Path, factors: dict[str, Any], *, rank: int = RANK, alpha: float = 8.0, **options: Any
) -> Path:
    """Write an adapter; returns its folder."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", **options}
    (folder / CONFIG).write_text(json.dumps(config))
    save_file(factors, folder / TENSORS)
    return folder


def gguf_writer(path: Path, keys: Mapping[str, Any] | None = None) -> gguf.GGUFWriter:
    """A GGUF file of an adapter without tensors; None leaves out a key."""
    values = {"general.type": "adapter", "adapter.type": "lora", **(keys or {})}
    writer = gguf.GGUFWriter(path, values.pop("general.architecture", "llama"))
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    return writer


def close(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(
    path: Path,
    factors: Mapping[str, Any],
    *,
    alpha: float | None = 8.0,
    type_: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    keys: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Write an adapter as a GGUF file; returns its path.

    `changes` replaces tensors by name, or leaves them out.
    """
    writer = gguf_writer(path, {"adapter.lora.alpha": alpha, **(keys or {})})
    names = {f"{TENSOR}.lora_a": factors[A], f"{TENSOR}.lora_b": factors[B]}
    tensors = {name: gguf.quantize(values, type_) for name, values in names.items()}
    types = dict.fromkeys(tensors, type_)
    for name, values in (tensors | dict(changes or {})).items():
        if values is not None:
            changed = name in (changes or {})
            writer.add_tensor(name, values, raw_dtype=None if changed else types[name])
    close(writer)
    return path
