"""A Gemma 3 of two layers with random weights, which is traced and written at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from examples.train_tiny_gemma import CONFIG, hugging_face_config, initial, save
from models.gemma3 import Gemma3

if TYPE_CHECKING:
    from pathlib import Path


def small_gemma(folder: Path, *, ffn: int = CONFIG.ffn) -> Path:
    """Write the weights as a Hugging Face folder; returns it. Each row of `ffn` is 1.5 KB."""
    save(initial(Gemma3(replace(CONFIG, ffn=ffn)).parameters(), seed=0), folder)
    config = hugging_face_config() | {"intermediate_size": ffn}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
