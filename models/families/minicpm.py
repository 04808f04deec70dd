"""MiniCPM 1, 2 and 4: Granite with other names of its multipliers.

Source: "MiniCPM" (2024) and modeling_minicpm.py of openbmb/MiniCPM4-8B (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.config.long_rope import LongRopeConfig, long_fields_from_gguf
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families import granite
from hearthd.models.families.granite import Granite
from hearthd.models.families.minicpm3 import long_rope, scales_from_gguf, with_multipliers

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(LongRopeConfig, granite.Config):
    """The shape of a model."""


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.assume(tie_word_embeddings=True)
    data.fixed(sparse_config=None)  # attention of MiniCPM4.1 over chosen blocks
    data.ignore("mup_denominator")
    fields = from_config_json(data, long_rope)
    fields = with_multipliers(data, fields, fields["head_dim"])
    return Config(**fields, attention_scale=fields["head_dim"] ** -0.5)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    fields |= {"attention_scale": fields["head_dim"] ** -0.5, **scales_from_gguf(data, fields)}
    return Config(**fields | long_fields_from_gguf(data, fields["head_dim"], fields["max_context"]))


ARCHITECTURE = Architecture(
    name="minicpm",
    config=Config,
    model_types=("minicpm",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Granite,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
