"""Queries, keys and values in one tensor, rows as columns, and masks, as older files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.parameters.parameter_writer import parameter_blocks
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import BLOCK_BYTES
from hearthd.models.catalog import ARCHITECTURES
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_joined_heads import with_joined_heads
from tests.models.tiny_configs import tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["chatglm-glm", "phi2-phi2"])
def test_an_older_gguf_file_has_one_tensor(name: str, tmp_path: Path) -> None:
    architecture = CASES[name].architecture
    write_folder(recorded(name), tmp_path)
    folder = open_weights(tmp_path)
    config: Any = ours.config_of(folder, architecture)
    _, values = ours.parameters_of(folder, architecture, config, tmp_path)
    expected = {key: np.array(array) for key, array in values.items()}
    file = open_weights(with_joined_heads(write_gguf(tmp_path, architecture, config)))
    same = ours.config_of(file, architecture)
    assert getattr(same, "attention_bias", None) == config.attention_bias
    _, actual = ours.parameters_of(file, architecture, same, tmp_path)
    assert expected.keys() == actual.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(actual[key], array, err_msg=key)


def test_causal_masks_of_older_folders_are_left_out() -> None:
    tensors = ARCHITECTURES["gptneox"].tensors
    assert tensors.is_other_part("gpt_neox.layers.0.attention.masked_bias")
    assert tensors.is_other_part("gpt_neox.layers.0.attention.bias")
    assert not tensors.is_other_part("gpt_neox.layers.0.attention.dense.bias")


def test_the_columns_of_a_tensor_of_several_blocks_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    values = np.arange(4200 * 1024, dtype=np.float32).reshape(4200, 1024)
    assert values.nbytes > BLOCK_BYTES
    save_file({"h.0.mlp.c_proj.weight": values}, path)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    source, tensors = SafetensorsSource(tmp_path), ARCHITECTURES["gpt2"].tensors
    config = tiny("gpt2")
    (tensor,) = tensors.parts(config, "layers.0.mlp.down_proj.weight", source.names(), gguf=False)
    rows = np.concatenate([*parameter_blocks(source, tensor, 4200)])
    np.testing.assert_array_equal(rows, values.T)
