"""Recurrent families: their published configurations, and their GGUF files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families import ours
from tests.models.families.cases import CASES, TOKENS, random_tensors
from tests.models.families.converted_files import converted
from tests.models.families.family_recording import ROWS, recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource


def test_value_heads_in_the_order_of_a_gguf_file_give_the_same_logits(tmp_path: Path) -> None:
    """llama.cpp's converter has value head i read key head i mod J."""
    name = "qwen35-shared_keys"
    case = CASES[name]
    write_folder(recorded(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), case.architecture)
    file = open_weights(write_gguf(tmp_path, case.architecture, config))
    same: Any = ours.config_of(file, case.architecture)
    assert replace(same, norm_eps=config.norm_eps) == replace(config, takes_turns=True)
    same_logits(file, name, tmp_path)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([True, True, False], (False, False, True)),
        ([False, True, True], (True, False, False)),
        (True, (False, False, False)),
    ],
)
def test_a_gguf_file_may_say_which_layers_are_recurrent(
    flags: Any, expected: tuple[bool, ...], tmp_path: Path
) -> None:
    assert with_recurrent_layers(flags, tmp_path).attends == expected


def test_layers_that_predict_further_tokens_have_flags_too(tmp_path: Path) -> None:
    more = {"qwen35.block_count": 4, "qwen35.nextn_predict_layers": 1}
    config = with_recurrent_layers([True, True, False, False], tmp_path, more)
    assert (config.layers, config.attends) == (3, (False, False, True))


def test_flags_for_other_layers_are_refused(tmp_path: Path) -> None:
    message = (
        r"^qwen35\.attention\.recurrent_layers: got 2 flags, expected one for each of 3 layers$"
    )
    with pytest.raises(ConfigError, match=message):
        with_recurrent_layers([True, False], tmp_path)


def with_recurrent_layers(flags: Any, folder: Path, more: dict[str, int] | None = None) -> Any:
    """The configuration of a file whose interval says something else: layer 1 has attention."""
    write_folder(recorded("qwen35-shared_keys"), folder)
    config: Any = ours.config_of(open_weights(folder), "qwen35")
    file: Any = open_weights(write_gguf(folder, "qwen35", config))
    key = "qwen35.attention.recurrent_layers"
    metadata = {**file.metadata(), key: flags, **(more or {})}
    shapes = {name: file.shape(name) for name in file.names()}
    return ARCHITECTURES["qwen35"].from_gguf(metadata, shapes, file.read)


def test_a_gguf_file_of_falcon_h1_has_the_multipliers_in_its_matrices(tmp_path: Path) -> None:
    name = "falcon-h1-falcon_h1"
    write_folder(recorded(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "falcon-h1")
    file = open_weights(write_gguf(tmp_path, "falcon-h1", config))
    same: Any = ours.config_of(file, "falcon-h1")
    assert config.mlp_scales != (1.0, 1.0) == same.mlp_scales
    same_logits(file, name, tmp_path)


def same_logits(file: WeightSource, name: str, folder: Path) -> None:
    recording = recorded(name)
    logits = ours.logits(file, CASES[name].architecture, folder, TOKENS)
    difference = np.abs(logits[ROWS] - recording.logits).max()
    assert difference <= 1e-4 * np.abs(recording.logits).max()
    assert logits.argmax(axis=1).tolist() == recording.greedy


def test_layers_of_nemotron_h_are_read_from_the_pattern_of_older_files() -> None:
    config = recorded("nemotron_h-nemotron_h").config
    older = {**config, "hybrid_override_pattern": "M-*-M", "layers_block_type": None}
    read = ARCHITECTURES["nemotron_h"].from_hugging_face
    assert read(older) == read(config)
    with pytest.raises(ConfigError, match="layers_block_type: got 'E', supported: mamba"):
        read({**older, "hybrid_override_pattern": "M-*EM"})


def test_a_published_folder_of_qwen35_has_the_experts_of_a_layer_together(tmp_path: Path) -> None:
    """And images: the text model is a part, whose tensors have another prefix."""
    name = "qwen35moe-qwen35moe"
    recording, tensors = recorded(name), random_tensors(recorded(name).shapes)
    together: dict[str, Any] = {}
    for layer in range(recording.config["num_hidden_layers"]):
        experts = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            np.stack([tensors.pop(f"{experts}{i}.{part}_proj.weight") for i in range(5)])
            for part in ("gate", "up", "down")
        )
        together[f"{experts}gate_up_proj"] = np.concatenate([gate, up], axis=1)
        together[f"{experts}down_proj"] = down
    renamed = {
        tensor.replace("model.", "model.language_model.", 1): values
        for tensor, values in (tensors | together).items()
    }
    config = {"model_type": "qwen3_5_moe", "text_config": recording.config, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(renamed, tmp_path / "model.safetensors")
    same_logits(open_weights(tmp_path), name, tmp_path)


def test_an_older_gguf_file_of_qwen3_next_has_the_rows_of_the_folder(tmp_path: Path) -> None:
    write_folder(recorded("qwen3next-qwen3next"), tmp_path)
    folder, stored = open_weights(tmp_path), "blk.0.ssm_in.weight"
    config, tensors = ours.config_of(folder, "qwen3next"), ARCHITECTURES["qwen3next"].tensors
    for part, count in {"in_proj_qkv": 3, "in_proj_z": 1}.items():
        parameter = f"layers.0.self_attn.{part}.weight"
        expected = tensors.parts(config, parameter, folder.names(), gguf=False)
        assert len(expected) == count
        older = tensors.parts(config, parameter, (stored,), gguf=True)
        assert older == tuple(replace(tensor, name=stored) for tensor in expected)


@pytest.mark.parametrize(
    "name",
    [
        "nemotron_h-nemotron_h", "nemotron_h_moe-nano", "nemotron_h_moe-mixed", "qwen35-qwen35",
        "qwen35moe-qwen35moe", "qwen3next-qwen3next",
    ],
)  # fmt: skip
def test_a_folder_is_of_the_family_with_or_without_experts_by_its_layers(
    name: str, tmp_path: Path
) -> None:
    write_folder(recorded(name), tmp_path)
    assert identify(open_weights(tmp_path), None).architecture == CASES[name].architecture


def test_layers_of_nemotron_h_that_predict_further_tokens_follow_the_others() -> None:
    recording = converted("nemotron_h_moe-nano")
    shapes = {tensor: shape for tensor, (shape, _) in recording.tensors.items()}
    more = {
        "block_count": 5, "nextn_predict_layers": 1, "feed_forward_length": [0, 28, 0, 28, 28],
        "attention.head_count_kv": [0, 0, 2, 0, 2],
    }  # fmt: skip
    metadata = {**recording.metadata, **{f"nemotron_h_moe.{key}": more[key] for key in more}}
    read = ARCHITECTURES["nemotron_h_moe"].from_gguf
    assert read(metadata, shapes, no_tensor) == read(recording.metadata, shapes, no_tensor)


def no_tensor(name: str) -> Any:
    raise AssertionError(f"{name} is not needed")


@pytest.mark.parametrize(
    ("key", "value"), [("n_group", 2), ("n_shared_experts", 2), ("mlp_bias", True)]
)
def test_experts_of_nemotron_h_that_are_not_supported_are_refused(key: str, value: object) -> None:
    config = {**recorded("nemotron_h_moe-nano").config, key: value}
    with pytest.raises(ConfigError, match=rf"^config\.json: {key} = {value}, supported"):
        ARCHITECTURES["nemotron_h_moe"].from_hugging_face(config)
