"""An architecture as the baker uses it. models/catalog.py finds the architectures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import override

from hearthd.bundle import MANIFEST, ModelMatrix, NotABundle
from hearthd.models.config import ConfigError, ModelConfig
from hearthd.models.decoder.config.config_json import FEATURE_EXTRACTOR, PROCESSOR, ConfigJson
from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
from hearthd.models.decoder.entry_points import program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.bundle import AdapterMatrix, GridInput, ImageInput, SoundInput
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.decoder.tensor_names import TensorNames
    from hearthd.models.program import Program, ProgramOptions

C = TypeVar("C", bound=ModelConfig)
S = TypeVar("S")
_WEIGHT = ".weight"


@dataclass(frozen=True, kw_only=True)
class ArchitectureFiles(Generic[C]):
    """How an architecture is read from files; C is its configuration.

    name              as manifests have it
    config            the class of its configurations
    model_types       values of `model_type` in config.json
    read_config_json  configuration from config.json
    read_gguf         configuration from GGUF metadata
    tensors           names of its tensors in files
    gguf_name         as GGUF files have it; empty: the same name
    """

    name: str
    config: type[C]
    model_types: tuple[str, ...]
    read_config_json: Callable[[ConfigJson], C]
    read_gguf: Callable[[GgufMetadata], C]
    tensors: TensorNames
    gguf_name: str = ""

    @property
    def name_in_gguf(self) -> str:
        """The value of `general.architecture`."""
        return self.gguf_name or self.name

    def from_hugging_face(self, data: Mapping[str, Any]) -> C:
        """The configuration in a config.json.

        Raises ConfigError, naming the key that is missing, unknown or unsupported.
        """
        model_type = data.get("model_type")
        if model_type not in self.model_types:
            raise ConfigError(
                f"config.json: model_type: expected {' or '.join(self.model_types)}, got "
                f"{model_type!r:.80}"
            )
        reader = ConfigJson(data)
        config = self.read_config_json(reader)
        reader.finish()
        return config

    def from_gguf(
        self,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, tuple[int, ...]],
        read: Callable[[str], NDArray[np.float32]],
    ) -> C:
        """The configuration in GGUF metadata, the shapes of the file's tensors, and `read`, which
        gives a tensor's values.

        Raises ConfigError, naming the key that is missing, unknown or unsupported.
        """
        reader = GgufMetadata(metadata, tensors, read, self.name_in_gguf)
        config = self.read_gguf(reader)
        reader.finish()
        return config

    def tower_parameters(self, config: C) -> tuple[str, ...]:  # noqa: ARG002
        """The parameters that a program without images does not read."""
        return ()

    def to_manifest(self, config: C) -> dict[str, Any]:
        """A configuration as a manifest holds it."""
        return asdict(config)

    def from_manifest(self, data: Mapping[str, Any]) -> C:
        """The configuration that a manifest holds; raises ConfigError."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        try:
            return self.config(**fields)
        except TypeError as error:
            raise ConfigError(f"the manifest's config is not of {self.name}: {error}") from error


def _read(
    read: Callable[[C, ConfigJson], S], config: C, metadata: Mapping[str, Any], key: str
) -> S:
    """Read a processor's settings with `read`.

    Raises ConfigError if it leaves a key unread, or if no manifest could have the settings.
    """
    reader = ConfigJson(metadata.get(key, {}), where=key)
    try:
        settings = read(config, reader)
    except NotABundle as error:
        raise ConfigError(f"{key}: {str(error).removeprefix(f'{MANIFEST}.')}") from error
    reader.finish()
    return settings


@dataclass(frozen=True, kw_only=True)
class Architecture(ArchitectureFiles[C]):
    """An architecture of decoders.

    model   the model of a configuration
    images  how a model reads images, by its configuration and the settings of its processor; None
            for an architecture that reads none. Raises ConfigError
    sound   the same for sound, with the settings of its feature extractor; called if `sound` of the
            configuration is not None
    """

    model: Callable[[C], Decoder]
    images: Callable[[C, ConfigJson], ImageInput | GridInput] | None = None
    sound: Callable[[C, ConfigJson], SoundInput] | None = None

    @override
    def tower_parameters(self, config: C) -> tuple[str, ...]:
        if not self.tensors.towers:
            return ()
        names = self.model(config).parameters()
        return tuple(name for name in names if name.partition(".")[0] in self.tensors.towers)

    def image_input(self, config: C, metadata: Mapping[str, Any]) -> ImageInput | GridInput | None:
        """How the model of these weights reads images, if it does; raises ConfigError."""
        return None if self.images is None else _read(self.images, config, metadata, PROCESSOR)

    def sound_input(self, config: C, metadata: Mapping[str, Any]) -> SoundInput | None:
        """How the model of these weights reads sound, if it does; raises ConfigError."""
        return (
            None
            if self.sound is None or config.sound is None
            else _read(self.sound, config, metadata, FEATURE_EXTRACTOR)
        )

    def program(self, config: C, options: ProgramOptions) -> Program:
        """The model's entry points; raises TypeRuleError if the precision is not for this model."""
        traced = program(self.model(config), options)
        if not (adapters := traced.adapters).count:
            return traced
        matrices = tuple(self._named(config, matrix) for matrix in adapters.matrices)
        named = replace(adapters, matrices=matrices, gguf_architecture=self.name)
        return replace(traced, adapters=named)

    def matrix(self, config: C, parameter: str, shape: tuple[int, int]) -> ModelMatrix:
        """A matrix of the model as adapters name it."""
        stored = self.tensors.find(config, parameter, (), gguf=True)
        in_folder = self.tensors.find(config, parameter, (), gguf=False).interleaved
        interleaved = stored.interleaved or in_folder
        return ModelMatrix(
            module=self.module_in_folder(config, parameter.removesuffix(_WEIGHT)),
            rows=shape[0],
            columns=shape[1],
            gguf=stored.name,
            interleaved=interleaved,
            folder_interleaved=bool(in_folder),
            gguf_interleaved=stored.interleaved == interleaved,
        )

    def _named(self, config: C, matrix: AdapterMatrix) -> AdapterMatrix:
        """A matrix that has the module's name in the model, with the names that files have."""
        shape = matrix.rows, matrix.columns
        return replace(matrix, **asdict(self.matrix(config, matrix.module + _WEIGHT, shape)))

    def module_in_folder(self, config: C, module: str) -> str:
        """The name of a module with a matrix in Hugging Face's models, and so in PEFT's files."""
        name = self.tensors.find(config, module + _WEIGHT, (), gguf=False).name
        return name.removesuffix(_WEIGHT)


@dataclass(frozen=True, kw_only=True)
class AssistantArchitecture(Architecture[C]):
    """An architecture of assistants, which draft tokens for another model."""


@dataclass(frozen=True, kw_only=True)
class DraftShape:
    """The architecture and configuration of a draft model."""

    architecture: Architecture[Any]
    config: ModelConfig

    def decoder(self) -> Decoder:
        """The model, which is traced."""
        return self.architecture.model(self.config)

    @property
    def reads_tokens(self) -> bool:
        """Whether it reads the tokens of a sequence, and is not an assistant."""
        return not isinstance(self.architecture, AssistantArchitecture)
