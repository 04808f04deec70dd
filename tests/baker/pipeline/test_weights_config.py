"""The architecture and the configuration that weights have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.weights_config import check_architecture, identify, model_config
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import BadFile
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.ours import OPTIONS

if TYPE_CHECKING:
    from hearthd.models.config import ModelConfig

TIED = ("llama-tied", "gemma3-gemma3", "gemma4-unshared", "granite-granite", "lfm2-lfm2")


class OnlyMetadata:
    """Weights without tensors: only the metadata may be read."""

    def __init__(self, format_: str, metadata: dict[str, object], *names: str) -> None:
        self.format = format_
        self.folder = Path("folder") if format_ == "safetensors" else None
        self._metadata, self._names = metadata, names

    def metadata(self) -> dict[str, object]:
        return self._metadata

    def names(self) -> tuple[str, ...]:
        return self._names

    def shape(self, _name: str) -> tuple[int, ...]:
        return (1, 1)

    read = None

    def files(self) -> tuple[Path, ...]:
        return (Path("model.gguf"),)


@pytest.mark.parametrize(
    ("format_", "metadata", "error", "message"),
    [
        ("safetensors", {"model_type": "qwen3"}, RecipeError,
         "folder/config.json: model_type: got 'qwen3': bake these weights with `hearth bake qwen3` "
         "or `hearth bake qwen3-reranker`, not gemma3"),
        ("gguf", {"general.architecture": "llama", "llama.block_count": 2}, RecipeError,
         "model.gguf: general.architecture: got 'llama': bake these weights with `hearth bake "
         "falcon3` or `hearth bake llama3` or `hearth bake llava` or `hearth bake llava1.6` or "
         "`hearth bake minicpm-v4` or `hearth bake minicpm5` or `hearth bake mistral` or "
         "`hearth bake mixtral` or `hearth bake pixtral` or `hearth bake smollm2` or "
         "`hearth bake smolvlm` or `hearth bake ultravox` or `hearth bake voxtral`, not gemma3"),
        ("safetensors", {"model_type": "bert"}, RecipeError, "with `hearth bake bert` or "
         "`hearth bake jina-v2-code` or `hearth bake jina-v2`, not gemma3"),
        ("gguf", {"general.architecture": "llama", "general.type": "adapter"}, ConfigError,
         "is a LoRA adapter; specify the model, and this file with --adapter$"),
        ("gguf", {"general.architecture": "clip"}, ConfigError,
         "is a projector of images or sound; specify the model, and this file with --mmproj$"),
        ("gguf", {"general.architecture": "qwen3tts", "qwen3tts.block_count": 2}, ConfigError,
         "^model.gguf: general.architecture: got 'qwen3tts', which is not a supported "
         "architecture; similar supported names: qwen3, qwen35, qwen3next$"),
        ("safetensors", {"model_type": "arctic"}, ConfigError,
         "folder/config.json: model_type: got 'arctic', which is not a supported architecture; "
         "`hearth bake --help` lists the supported models$"),
        ("safetensors", {"architectures": ["Qwen3TTSForConditionalGeneration"]}, ConfigError,
         "model_type: got None, which is not a supported architecture; similar supported names: "
         "qwen3, "),
        ("safetensors", {"model_type": ["gemma3"]}, ConfigError,
         r"model_type: got \['gemma3'\], which is not a supported architecture; "),
        ("safetensors", {}, ConfigError, "got None, which is not a supported "
         "architecture; `hearth bake --help` lists the supported models$"),
    ],
)  # fmt: skip
def test_weights_of_another_architecture_are_named(
    format_: str, metadata: dict[str, object], error: type[Exception], message: str
) -> None:
    source: Any = OnlyMetadata(format_, metadata, "token_embd.weight")
    with pytest.raises(error, match=message):
        check_architecture("gemma3", source)


@pytest.mark.parametrize(
    ("metadata", "name", "message"),
    [
        ({}, "blk.0.attn_q.weight", "says nothing about its model: it seems to hold the tensors of "
         "a model without their metadata; download the file again, or convert"),
        ({"general.architecture": "llama"}, "blk.0.attn_q.weight",
         "says only general.architecture 'llama' about its model: it seems to hold the tensors of "
         "a model without their metadata; download the file again, or convert"),
        ({}, "model.layers.0.mlp.up_proj.weight", "says nothing about its model: it seems to hold "
         "the tensors of a Hugging Face folder in a GGUF file; specify the folder, or convert it"),
        ({"adapter.type": "lora"}, "blk.0.attn_q.weight.lora_a",
         "seems to be a LoRA adapter; specify the model, and this file with --adapter$"),
        ({}, "blk.0.attn_q.weight.in_sum2", "seems to be an importance matrix, which"),
        ({}, "v.blk.0.attn_q.weight", "seems to be a projector of images or sound"),
        ({}, "a.blk.0.attn_q.weight", "seems to be a projector of images or sound"),
        ({"general.architecture": "flux"}, "double_blocks.0.img_attn.qkv.weight",
         "seems to be a model that draws images or videos; specify a language model$"),
        ({"general.architecture": "controlvector", "controlvector.model_hint": "llama"},
         "direction.1", "is a control vector, which Hearth does not apply; specify the model$"),
        ({"general.architecture": "gemma4-assistant", "gemma4-assistant.block_count": 1},
         "blk.0.attn_q.weight", "is of an assistant, .*, and the assistant with --drafter$"),
        ({}, "net.0.weight", "says nothing about a model, and has no tensors of one; specify"),
    ],
)  # fmt: skip
def test_a_gguf_file_without_a_model_says_what_it_seems_to_be(
    metadata: dict[str, object], name: str, message: str
) -> None:
    source: Any = OnlyMetadata("gguf", metadata, name)
    with pytest.raises(ConfigError, match=f"^model.gguf {message}"):
        identify(source, None)


def test_a_vocabulary_without_tensors_is_named() -> None:
    source: Any = OnlyMetadata("gguf", {"general.architecture": "llama", "llama.block_count": 2})
    with pytest.raises(ConfigError, match="has no tensors: it seems to be a vocabulary"):
        identify(source, None)


@pytest.mark.parametrize("case", ["bailingmoe-ling", "bailingmoe2-ling"])
def test_the_router_tells_families_of_a_model_type(case: str, tmp_path: Path) -> None:
    write_folder(recorded(case), tmp_path)
    assert identify(SafetensorsSource(tmp_path), None).architecture == CASES[case].architecture


def test_each_architecture_of_a_name_says_why_it_rejects_weights(tmp_path: Path) -> None:
    write_folder(recorded("qwen3-qwen3"), tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    message = "as qwen3: pooling: got 'cls', .*; as qwen3-reranker: 1_Pooling/config.json: got a "
    with pytest.raises(ConfigError, match=message):
        identify(SafetensorsSource(tmp_path), None)


def config_of(folder: Path, architecture: str) -> ModelConfig:
    return model_config(SafetensorsSource(folder), ARCHITECTURES[architecture])


@pytest.mark.parametrize("case", TIED)
def test_a_head_beside_a_tied_table_is_used_unless_it_is_a_copy(case: str, tmp_path: Path) -> None:
    """As transformers 5 does: it does not tie tensors that a file has with different values."""
    write_folder(recorded(case), tmp_path)
    path, architecture = tmp_path / "model.safetensors", CASES[case].architecture
    tensors: dict[str, Any] = load_file(path)
    (table,) = (name for name in tensors if name.endswith("embed_tokens.weight"))
    config: Any = config_of(tmp_path, architecture)
    assert config.tied
    save_file({**tensors, "lm_head.weight": tensors[table]}, path)
    assert config_of(tmp_path, architecture) == config
    head = tensors[table].copy()
    head[-1, -1] += np.float32(1)
    save_file({**tensors, "lm_head.weight": head}, path)
    untied: Any = config_of(tmp_path, architecture)
    assert not untied.tied
    family, source = ARCHITECTURES[architecture], SafetensorsSource(tmp_path)
    located = locate(source, family, untied, family.program(untied, OPTIONS))
    names = {tensor.name for one in located for parts in one.tensors for tensor in parts}
    assert names == {*tensors, "lm_head.weight"}


def test_a_bias_of_a_head_is_not_ignored(tmp_path: Path) -> None:
    write_folder(recorded("llama-tied"), tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), "lm_head.bias": np.ones(101, np.float32)}, path)
    config: Any = config_of(tmp_path, "llama")
    family, source = ARCHITECTURES["llama"], SafetensorsSource(tmp_path)
    with pytest.raises(BadFile, match="tensors that llama does not use"):
        locate(source, family, config, family.program(config, OPTIONS))
