"""A Gemma 3 of two layers with random weights, which is traced and written at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from examples.train_tiny_gemma import CONFIG, hugging_face_config, initial, save
from hearthd.models.families.gemma3 import Config, Gemma3

if TYPE_CHECKING:
    from pathlib import Path


# The kernels take heads of this width: the compiler has half as much to do as without them.
SMALL = replace(CONFIG, head_dim=64)


def small_gemma(folder: Path, config: Config = SMALL) -> Path:
    """Write random weights of two layers as a Hugging Face folder; returns it."""
    save(initial(Gemma3(config).parameters(), seed=0), folder)
    (folder / "config.json").write_text(json.dumps(hugging_face_config(config)))
    return folder
