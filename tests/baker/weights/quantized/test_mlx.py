"""Folders that MLX quantized are refused by their method."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import UnsupportedType

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("keys", [["quantization"], ["quantization", "quantization_config"]])
def test_a_folder_of_mlx_is_refused(keys: list[str], tmp_path: Path) -> None:
    settings = {"group_size": 64, "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(dict.fromkeys(keys, settings)))
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedType, match=r"quant_method: got 'mlx', expected one of "):
        open_weights(tmp_path)
