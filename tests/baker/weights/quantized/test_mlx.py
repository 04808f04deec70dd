"""Folders of MLX: settings of modules, and tensors and modes that are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile
from hearthd.models.config import ConfigError
from tests.baker.weights.quantized.packing import GROUP, Packed, mlx

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {"model.embed_tokens": 4, "lm_head": 6}


def write(folder: Path, settings: dict[str, Any]) -> dict[str, Packed]:
    rng = np.random.default_rng(0)
    packed = {name: mlx(bits)(rng, 8, 64) for name, bits in MODULES.items()}
    tensors = {
        f"{name}.{part}": array
        for name, matrix in packed.items()
        for part, array in matrix.tensors.items()
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization": settings}))
    return packed


def test_a_module_has_its_own_bits(tmp_path: Path) -> None:
    own = {"lm_head": {"group_size": GROUP, "bits": 6}}
    packed = write(tmp_path, {"group_size": GROUP, "bits": 4, "mode": "affine", **own})
    source = open_weights(tmp_path)
    assert source.names() == ("lm_head.weight", "model.embed_tokens.weight")
    for name, bits in MODULES.items():
        assert source.dtype(f"{name}.weight") == f"MLX int{bits}"
        np.testing.assert_array_equal(source.read(f"{name}.weight"), packed[name].values)


def test_a_module_has_its_own_group(tmp_path: Path) -> None:
    packed = write(tmp_path, {"group_size": 64, "lm_head": {"group_size": GROUP}})
    # A group of 64 columns would mean that the embedding has 2 bits in 128 columns.
    source = open_weights(tmp_path)
    np.testing.assert_array_equal(source.read("lm_head.weight"), packed["lm_head"].values)
    assert source.shape("model.embed_tokens.weight") == (8, 128)


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for settings in ({"group_size": 48, "bits": 4}, {"group_size": GROUP, "bits": 4}):
        write(tmp_path, settings)
        with pytest.raises(BadFile, match=r"weight of mlx has \d+ words of a row for \d+ columns"):
            open_weights(tmp_path)
    write(tmp_path, {"group_size": GROUP, "mode": "mxfp4"})
    with pytest.raises(ConfigError, match=r"mode: got 'mxfp4' of MLX, expected 'affine'; use the"):
        open_weights(tmp_path)
