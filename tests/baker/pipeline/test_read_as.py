"""Weights of an architecture that Hearth does not know: what is suggested, and `--as`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import save_file

from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.read_as import with_layers_of
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.weights_config import identify, opened_as
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.config import ConfigError
from tests.models.families import ours
from tests.models.families.cases import random_tensors
from tests.models.families.encoders.encoder_cases import recorded_encoder
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource

UNKNOWN = "lamma"


def folder(case: str, path: Path, **changes: Any) -> WeightSource:
    """The folder of a case whose architecture has another name."""
    write_folder(recorded(case), path)
    config = {**recorded(case).config, "model_type": UNKNOWN, **changes}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return open_weights(path)


def gguf_file(path: Path) -> WeightSource:
    """A GGUF file of a Llama whose architecture has another name."""
    write_folder(recorded("llama-llama"), path)
    config: Any = ours.config_of(open_weights(path), "llama")
    file = write_gguf(path, "llama", config)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"llama", UNKNOWN.encode()))
    return open_weights(file)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("llama-llama", "llama"),
        ("qwen2-qwen2", "qwen2"),
        ("qwen3-qwen3", "qwen3"),
        ("qwen3moe-qwen3moe", "qwen3moe"),
        ("olmo2-olmo2", "olmo2"),
        ("granite-granite", "granite"),
        ("exaone4-full", "exaone4"),
        ("arcee-arcee", "arcee"),
        ("command-r-command_r", "command-r"),
        ("cohere2-cohere2", "cohere2"),
        ("dots1-dots1", "dots1"),
        ("glm4moe-air", "glm4moe"),
        ("qwen2moe-qwen2moe", "qwen2moe"),
        ("starcoder2-starcoder2", "starcoder2"),
        ("stablelm-stablelm", "stablelm"),
        ("nemotron-nemotron", "nemotron"),
    ],
)
def test_an_architecture_with_the_same_tensors_is_suggested(
    case: str, name: str, tmp_path: Path
) -> None:
    source = folder(case, tmp_path)
    message = f"got 'lamma', .*; it has the layers of `{name}`; bake it with `--as {name}`$"
    with pytest.raises(ConfigError, match=message):
        identify(source, None)


def test_of_a_gguf_file_the_order_of_rows_is_not_known(tmp_path: Path) -> None:
    source = gguf_file(tmp_path)
    assert with_layers_of(source) == ["llama", "qwen2"]
    with pytest.raises(
        ConfigError, match="the layers of `llama` or `qwen2`; bake it with `--as` and"
    ):
        identify(source, None)


@pytest.mark.parametrize("gguf", [False, True])
def test_weights_are_read_as_the_architecture_that_is_named(gguf: bool, tmp_path: Path) -> None:
    source = gguf_file(tmp_path) if gguf else folder("llama-llama", tmp_path)
    family = identify(opened_as(source, "llama"), None)
    assert family.architecture == "llama"
    write_folder(recorded("llama-llama"), tmp_path)
    expected: Any = ours.config_of(open_weights(tmp_path), "llama")
    assert replace(family.config, norm_eps=expected.norm_eps) == expected
    assert family.config.norm_eps == pytest.approx(expected.norm_eps)


@pytest.mark.parametrize(
    ("case", "name"), [("eurobert", "eurobert"), ("modernbert", "modern-bert"), ("gte", "gte")]
)
def test_encoders_are_suggested_and_read_too(case: str, name: str, tmp_path: Path) -> None:
    recorded_encoder(case).write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": UNKNOWN}), "utf-8")
    source = open_weights(tmp_path)
    with pytest.raises(ConfigError, match=f"bake it with `--as {name}`$"):
        identify(source, None)
    options = bake_options({"as_": name})
    assert identify(opened_as(source, options.as_), None).architecture == name
    options.require_kind("encoder", name)
    assert options.record("encoder")["as_"] == name


def test_a_key_that_the_architecture_does_not_know_is_rejected(tmp_path: Path) -> None:
    source = folder("llama-llama", tmp_path, query_growth=0.5)
    assert with_layers_of(source) == ["llama"]
    with pytest.raises(ConfigError, match="unknown key query_growth"):
        identify(opened_as(source, "llama"), None)


def test_nothing_is_suggested_for_other_tensors(tmp_path: Path) -> None:
    source = folder("llama-llama", tmp_path)
    shapes = {**recorded("llama-llama").shapes, "model.layers.0.self_attn.sinks": (4,)}
    save_file(random_tensors(shapes), tmp_path / "model.safetensors")
    source = open_weights(tmp_path)
    assert with_layers_of(source) == []
    with pytest.raises(ConfigError, match="got 'lamma'") as error:
        identify(source, None)
    assert "--as" not in str(error.value)


def test_weights_of_a_known_architecture_are_not_read_as_another(tmp_path: Path) -> None:
    write_folder(recorded("qwen2-qwen2"), tmp_path)
    with pytest.raises(RecipeError, match=r"--as: got llama, but .* is 'qwen2'; omit the option"):
        opened_as(open_weights(tmp_path), "llama")


@pytest.mark.parametrize("name", ["Dream", "llada"])
def test_a_diffusion_model_is_not_read_as_another(name: str, tmp_path: Path) -> None:
    folder("llama-llama", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": name}), "utf-8")
    source = open_weights(tmp_path)
    with pytest.raises(RecipeError, match=f"got '{name}', a diffusion model, which fills in"):
        identify(source, None)
    with pytest.raises(RecipeError, match=f"got '{name}', a diffusion model"):
        opened_as(source, "llama")
