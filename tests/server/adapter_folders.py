"""Folders of tiny adapters as PEFT writes them, and a bundle's places for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from hearthd.bundle import AdapterArray, AdapterMatrix, AdapterPlaces
from hearthd.bundle.lora.adapter_folder import PREFIX, TENSORS
from hearthd.bundle.lora.adapter_settings import CONFIG

if TYPE_CHECKING:
    from pathlib import Path

MODULE, ROWS, COLUMNS, RANK = "model.layers.0.mlp.up_proj", 20, 8, 4
PLACES = AdapterPlaces(
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
