"""Weights of an unknown architecture that has the layers of a known one."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.baker.parameters.parameter_writer import tensors_of
from hearthd.baker.pipeline.not_a_model import ARCHITECTURE
from hearthd.baker.weights.source import BadFile, WeightsError
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.catalog import ENCODERS, TEXT
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
from hearthd.models.decoder.tensor_names import GGUF_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.decoder.architecture import Architecture, ArchitectureFiles
    from hearthd.models.encoder.encoder_architecture import EncoderArchitecture


class ReadAs(SourceInFront):
    """Weights whose metadata name a known architecture in place of their own."""

    def __init__(self, base: WeightSource, architecture: ArchitectureFiles[Any]) -> None:
        super().__init__(base)
        metadata = dict(base.metadata())
        if base.format == "gguf":
            prefix = f"{metadata.get(ARCHITECTURE)}."
            metadata = {
                f"{architecture.name_in_gguf}.{key.removeprefix(prefix)}"
                if key.startswith(prefix)
                else key: value
                for key, value in metadata.items()
            }
            metadata[ARCHITECTURE] = architecture.name_in_gguf
        else:
            metadata["model_type"] = architecture.model_types[0]
        self._metadata = metadata

    @override
    def metadata(self) -> Mapping[str, object]:
        """The metadata under the names of the known architecture."""
        return self._metadata


def with_layers_of(source: WeightSource) -> list[str]:
    """The plainest architectures with exactly the tensors of weights, by name.

    Architectures that know every key of the metadata go first, since bakes as others reject the
    key; then decoders, since some encoders have their tensors.
    """
    plainest: dict[tuple[bool | int, ...], list[str]] = {}
    for name, architecture in TEXT.items():
        with suppress(ConfigError, WeightsError):
            knows_keys = _knows_keys_of(ReadAs(source, architecture), architecture)
            names, fields = architecture.tensors, dataclasses.fields(architecture.config)
            order = (
                not knows_keys,
                name in ENCODERS,
                len(fields),
                names.norm_offset != 0.0,
                names.folder_interleaved,
                bool(names.others),
                names.gguf != GGUF_NAMES,
                bool(names.folder or names.joined or names.grouped),
            )
            plainest.setdefault(order, []).append(name)
    return _of_each_model(plainest[min(plainest)]) if plainest else []


def _of_each_model(names: list[str]) -> list[str]:
    """Of architectures with the same model and order of rows, the one of most `model_type`s."""
    kept: dict[object, str] = {}
    for name in sorted(names, key=lambda name: -len(TEXT[name].model_types)):
        architecture = TEXT[name]
        kept.setdefault((architecture.model, architecture.tensors.interleaved), name)
    return sorted(kept.values())


def _knows_keys_of(
    source: WeightSource, architecture: Architecture[Any] | EncoderArchitecture[Any]
) -> bool:
    """Whether an architecture knows every key of the metadata of weights with its tensors.

    Raises ConfigError or a WeightsError for weights with other tensors.
    """
    names, metadata = source.names(), source.metadata()
    shapes = {name: source.shape(name) for name in names}
    reader: GgufMetadata | ConfigJson
    if source.format == "gguf":
        reader = GgufMetadata(metadata, shapes, source.read, architecture.name_in_gguf)
        config = architecture.read_gguf(reader)
    else:
        reader = ConfigJson(metadata)
        config = architecture.read_config_json(reader)
    if config.layers > len(names):
        raise BadFile(f"{config.layers} layers, but {len(names)} tensors")
    parameters = architecture.model(config).parameters()
    sizes = {name: tensor.shape for name, tensor in parameters.items()}
    tensors_of(source, architecture, config, sizes)
    try:
        reader.finish()
    except ConfigError:
        return False
    return True
