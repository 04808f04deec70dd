"""MiniCPM-V 4.0: Llama with LongRoPE that reads images as MiniCPM-V 2.6 does.

Source: modeling_minicpmv.py of openbmb/MiniCPM-V-4 (2025), whose text model is MiniCPM4 with its
multipliers in the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.config.long_rope import (
    LongRopeConfig,
    long_fields,
    long_fields_from_gguf,
)
from hearthd.models.families import llama, minicpmv
from hearthd.models.families.minicpm3 import long_rope

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(LongRopeConfig, minicpmv.Config):
    """The shape of a model."""


class MiniCpmV4(llama.Llama, minicpmv.PartReader):
    """Llama with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def text_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of the text model, from config.json."""
    fields = from_config_json(data, long_rope)
    context = fields["max_context"]
    return fields | long_fields(long_rope(data, fields["head_dim"], context), context)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model and of its projector."""
    text = from_gguf_metadata(data)
    text |= long_fields_from_gguf(data, text["head_dim"], text["max_context"])
    return Config(**text, **minicpmv.gguf_tower_fields(data, text["hidden"]))


ARCHITECTURE = minicpmv.with_tower(
    llama.ARCHITECTURE,
    name="minicpmv4",
    config=Config,
    read_config_json=minicpmv.config_reader(4.0, text_fields, Config),
    read_gguf=from_gguf,
    model=MiniCpmV4,
)
