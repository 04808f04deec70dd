"""The family, the architecture and the configuration that files of weights have."""

from __future__ import annotations

import dataclasses
import difflib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.not_a_model import ARCHITECTURE, instead_of_model
from hearthd.baker.pipeline.read_as import ReadAs, with_layers_of
from hearthd.baker.pipeline.recipe import RecipeError, recipes, size_of
from hearthd.baker.tokenizer.tokenizer_files import require_tokenizer
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import CONFIG
from hearthd.baker.weights.source import BadFile, WeightsError, path_of
from hearthd.bundle import NotABundle
from hearthd.models.catalog import ASSISTANTS, ENCODERS, SPEECH, TEXT
from hearthd.models.config import ConfigError, OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.tensor_names import EMBEDDING, HEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import ArchitectureFiles

# Architectures of language models whose tokens see later tokens. Their tensors have the names of
# Llama's or Qwen's, so they would be read as Llama or Qwen.
_DIFFUSION = frozenset(("diffusion_gemma", "dream", "llada", "llada_moe", "rnd1"))


@dataclass(frozen=True, kw_only=True)
class Family:
    """What weights are.

    name          of the family; of the architecture, if their size does not tell which of several
                  families it is
    recipe        name of the family in configs/ whose defaults hold
    architecture  its name in the catalog
    config        its configuration
    """

    name: str
    recipe: str
    architecture: str
    config: Any

    @property
    def is_encoder(self) -> bool:
        """Whether it encodes texts, and generates none."""
        return self.architecture in ENCODERS

    @property
    def is_speech(self) -> bool:
        """Whether it transcribes speech."""
        return self.architecture in SPEECH

    @property
    def is_language_model(self) -> bool:
        """Whether it generates text from text."""
        return not (self.is_encoder or self.is_speech)


def families() -> Mapping[str, ArchitectureFiles[Any]]:
    """The architecture of each family that can be baked by its name."""
    decoders = {name: sizes[0].architecture for name, sizes in recipes().items()}
    encoders = {name: ENCODERS[recipe.architecture] for name, recipe in encoder_recipes().items()}
    return {**decoders, **encoders, **SPEECH}


def identify(source: WeightSource, named: str | None) -> Family:
    """What weights are, by their metadata. `named` is the family that they must be of, if any.

    Raises RecipeError if they are of another family, ConfigError if of none, or BadFile.
    """
    if named is not None:
        check_architecture(named, source)
    candidates = _families_with_towers_of(source) if named is None else [named]
    known = families()
    architecture, config = _read_as({known[name].name: known[name] for name in candidates}, source)
    names = [name for name in candidates if known[name] is architecture]
    fitting = [name for name in names if size_of(name, config)]
    certain = next((some for some in (names, fitting) if len(some) == 1), [architecture.name])
    return Family(
        name=certain[0],
        recipe=(fitting or names)[0],
        architecture=architecture.name,
        config=config,
    )


def opened(path: Path) -> tuple[WeightSource, Family]:
    """The weights in a file or a folder, and what they are; raises NotABundle."""
    try:
        source = open_weights(path)
        family = identify(source, None)
        require_tokenizer(source.folder)
    except (ConfigError, RecipeError, WeightsError) as error:
        raise NotABundle(str(error)) from error
    return source, family


def opened_as(source: WeightSource, name: str | None) -> WeightSource:
    """Weights as an architecture of this name, if one is given, in place of an unknown one.

    Raises RecipeError if the architecture of the weights is known, or one of diffusion.
    """
    if name is None:
        return source
    where, written_for = _named_in(source)
    _require_order(where, written_for)
    if written_for in _families_by_written_name(source):
        raise RecipeError(f"--as: got {name}, but {where} is {written_for!r}; omit the option")
    return ReadAs(source, TEXT[name])


def _read_as(
    architectures: Mapping[str, ArchitectureFiles[Any]], source: WeightSource
) -> tuple[ArchitectureFiles[Any], Any]:
    """The first architecture that accepts the weights' metadata, and their configuration."""
    reasons: dict[str, str] = {}
    for name, architecture in architectures.items():
        try:
            return architecture, _config_of(source, architecture)
        except OtherFamily as error:
            reasons.setdefault(str(error), name)
        except ConfigError as error:
            reasons.setdefault(str(error), name)
            if architecture.tensors.towers:  # a text model would leave them out
                break
    texts = [f"as {name}: {reason}" for reason, name in reasons.items()]
    raise ConfigError(f"{path_of(source)}: {'; '.join(reasons if len(reasons) == 1 else texts)}")


def _config_of(source: WeightSource, architecture: ArchitectureFiles[Any]) -> Any:
    if isinstance(architecture, Architecture):
        return model_config(source, architecture)
    return read_config(source, architecture)


def check_architecture(model: str, source: WeightSource) -> None:
    """Raise RecipeError if the weights belong to another family, ConfigError if to none."""
    names = families_of(source)
    if model not in names:
        commands = " or ".join(f"`hearth bake {name}`" for name in names)
        where, written_for = _named_in(source)
        raise RecipeError(
            f"{where}: got {written_for!r}: bake these weights with {commands}, not {model}"
        )


def assistant_of(source: WeightSource) -> Architecture[Any] | None:
    """The architecture of weights that are an assistant's."""
    gguf, metadata = source.format == "gguf", source.metadata()
    written = metadata.get(ARCHITECTURE if gguf else "model_type")
    for architecture in ASSISTANTS.values():
        names = (architecture.name_in_gguf,) if gguf else architecture.model_types
        if written in names:
            return architecture
    return None


def families_of(source: WeightSource) -> list[str]:
    """The families with the architecture of weights.

    Raises ConfigError for an unknown one, or RecipeError for one of diffusion.
    """
    if instead := instead_of_model(source):
        raise ConfigError(f"{_config_file(source)} {instead}")
    if assistant_of(source):
        raise ConfigError(
            f"{_config_file(source)} is of an assistant, which drafts tokens for its model; "
            "specify the model, and the assistant with --drafter"
        )
    names_of = _families_by_written_name(source)
    where, written_for = _named_in(source)
    _require_order(where, written_for)
    if not isinstance(written_for, str) or written_for not in names_of:
        names = source.metadata().get("architectures", []) if written_for is None else written_for
        raise ConfigError(
            f"{where}: got {written_for!r:.80}, which is not a supported architecture; "
            f"{_same_layers(source) or _nearest(names, names_of)}"
        )
    return names_of[written_for]


def _families_with_towers_of(source: WeightSource) -> list[str]:
    """The families that can read weights, first those that run a tower that the weights hold."""
    names, known = families_of(source), families()
    towers = {name: known[name].tensors.towers for name in names}
    tensors, gguf = source.names(), source.format == "gguf"
    present = [
        name
        for name in names
        if towers[name]
        and all(tower.has_any(tensors, gguf=gguf) for tower in towers[name].values())
    ]
    present.sort(key=lambda name: -len(towers[name]))
    others = [name for name in names if not towers[name]]
    if gguf and present:  # a projector that fits none of them is an error
        return present
    return [*present, *others] if present else others or names


def _families_by_written_name(source: WeightSource) -> Mapping[str, list[str]]:
    """The families of each architecture, by its names in files of the format of weights."""
    names_of = defaultdict(list)
    for name, architecture in families().items():
        in_gguf = source.format == "gguf"
        for written_name in (architecture.name_in_gguf,) if in_gguf else architecture.model_types:
            names_of[written_name].append(name)
    return names_of


def _named_in(source: WeightSource) -> tuple[str, object]:
    """Where weights name their architecture, for messages, and the name."""
    key = ARCHITECTURE if source.format == "gguf" else "model_type"
    return f"{_config_file(source)}: {key}", source.metadata().get(key)


def _require_order(where: str, written_for: object) -> None:
    """Raise RecipeError for a model that does not write its tokens one after the other."""
    if str(written_for).lower().replace("-", "_") in _DIFFUSION:
        raise RecipeError(
            f"{where}: got {written_for!r}, a diffusion model, which fills in tokens in any order "
            "and is not supported; specify a model that writes one token after the other"
        )


def _config_file(source: WeightSource) -> Path:
    """The file that names the architecture of weights."""
    return path_of(source) if source.folder is None else source.folder / CONFIG


def _same_layers(source: WeightSource) -> str:
    """The end of a message: the architectures whose tensors weights have, if any."""
    names = with_layers_of(source)
    if not names:
        return ""
    layers = "it has the layers of " + " or ".join(f"`{name}`" for name in names)
    if len(names) == 1:
        return f"{layers}; bake it with `--as {names[0]}`"
    return f"{layers}; bake it with `--as` and the name that its definition says"


def _nearest(written_for: object, models_of: Mapping[str, Sequence[str]]) -> str:
    """The end of a message: the supported architectures with similar names, if any.

    `written_for` is a name, or a list of classes such as LlamaForCausalLM.
    """
    names = written_for if isinstance(written_for, list) else [written_for]
    for name in map(str, names):
        plain = name.lower().partition("for")[0] or name.lower()
        if near := difflib.get_close_matches(plain, models_of, cutoff=0.7):
            return f"similar supported names: {', '.join(near)}"
    return "`hearth bake --help` lists the supported models"


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
            f"{path_of(source)}: the configuration has {config.layers} layers, but there are "
            f"{tensors} tensors"
        )
    return _with_head(config, source, architecture)


def _with_head(
    config: ModelConfig, source: WeightSource, architecture: Architecture[Any]
) -> ModelConfig:
    """The configuration, where a head is used that differs from a tied table, as transformers does.

    A head that is equal is a copy, and not read again.
    """
    names = source.names()
    head, table = (
        architecture.tensors.find(config, parameter, names, gguf=False).name
        for parameter in (HEAD, EMBEDDING)
    )
    if not isinstance(config, DecoderConfig) or not config.tied or head not in names:
        return config
    if source.shape(head) == source.shape(table):
        pairs = zip(source.blocks(head), source.blocks(table), strict=True)
        if all(np.array_equal(head, rows) for head, rows in pairs):
            return config
    return dataclasses.replace(config, tied=False)
