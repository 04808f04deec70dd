"""The architecture and the configuration that files of weights have."""

from __future__ import annotations

import dataclasses
import difflib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.recipe import RecipeError, recipes
from hearthd.baker.weights.safetensors import CONFIG
from hearthd.baker.weights.source import BadFile
from hearthd.models.catalog import ENCODERS
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.tensor_names import EMBEDDING, HEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture, ArchitectureFiles


def check_architecture(model: str, source: WeightSource) -> None:
    """Raise RecipeError if the weights belong to another model, ConfigError if to none."""
    in_gguf = source.format == "gguf"
    key = "general.architecture" if in_gguf else "model_type"
    written_for = source.metadata().get(key)
    models_of = _models_by_architecture(gguf=in_gguf)
    where = f"{_config_file(source)}: {key}"
    if written_for not in models_of:
        names = source.metadata().get("architectures", []) if written_for is None else written_for
        raise ConfigError(
            f"{where}: got {written_for!r:.80}, expected one of {', '.join(sorted(models_of))}"
            f"{_nearest(names, models_of)}"
        )
    if model not in models_of[str(written_for)]:
        commands = " or ".join(f"`hearth bake {name}`" for name in models_of[str(written_for)])
        raise RecipeError(
            f"{where}: got {written_for!r}: bake these weights with {commands}, not {model}"
        )


def _models_by_architecture(*, gguf: bool) -> Mapping[str, list[str]]:
    """The names of recipes by what GGUF files or config.json call their architectures."""
    files: list[tuple[str, ArchitectureFiles[Any]]] = [
        (name, sizes[0].architecture) for name, sizes in recipes().items()
    ]
    files += [(name, ENCODERS[one.architecture]) for name, one in encoder_recipes().items()]
    models_of = defaultdict(list)
    for name, architecture in files:
        for one in (architecture.name,) if gguf else architecture.model_types:
            models_of[one].append(name)
    return models_of


def _config_file(source: WeightSource) -> Path:
    """The file that names the architecture of weights."""
    return source.files()[0] if source.folder is None else source.folder / CONFIG


def _nearest(written_for: object, models_of: Mapping[str, Sequence[str]]) -> str:
    """The end of a message: the supported architecture with the most similar name, if any.

    `written_for` is a name, or a list of classes such as LlamaForCausalLM.
    """
    names = written_for if isinstance(written_for, list) else [written_for]
    for name in map(str, names):
        plain = name.lower().partition("for")[0] or name.lower()
        for near in difflib.get_close_matches(plain, models_of, n=1, cutoff=0.7):
            return f"; the nearest is {near}"
    return ""


def read_config(source: WeightSource, architecture: ArchitectureFiles[Any]) -> Any:
    """The configuration that weights have by their metadata; raises ConfigError."""
    if source.format == "gguf":
        shapes = {name: source.shape(name) for name in source.names()}
        return architecture.from_gguf(source.metadata(), shapes, source.read)
    return architecture.from_hugging_face(source.metadata())


def model_config(source: WeightSource, architecture: Architecture[Any]) -> ModelConfig:
    """The configuration that weights of a language model have; raises ConfigError or BadFile."""
    config: ModelConfig = read_config(source, architecture)
    tensors = len(source.names())
    if config.layers > tensors:  # reject early: tracing many layers takes long
        raise BadFile(
            f"the configuration has {config.layers} layers, but the weights have {tensors} tensors"
        )
    return _with_head(config, source, architecture)


def _with_head(
    config: ModelConfig, source: WeightSource, architecture: Architecture[Any]
) -> ModelConfig:
    """The configuration, where a head is used that differs from a tied table, as transformers does.

    A head that is equal is a copy, and not read again.
    """
    if not isinstance(config, DecoderConfig) or not config.tied or HEAD not in source.names():
        return config
    table = architecture.tensors.find(config, EMBEDDING, source.names(), gguf=False).name
    if source.shape(HEAD) == source.shape(table):
        pairs = zip(source.blocks(HEAD), source.blocks(table), strict=True)
        if all(np.array_equal(head, rows) for head, rows in pairs):
            return config
    return dataclasses.replace(config, tied=False)
