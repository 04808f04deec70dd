"""Ministral 3: Mistral with Llama 4's scaling of queries by position.

Source: the models `mistral3` and `ministral3` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    query_growth      g: a query at position p is multiplied by
                      1 + g log(1 + floor(p / original_context)); None: by 1
    original_context  in tokens
    """

    query_growth: float | None
    original_context: int


class Ministral3(Llama):
    """Llama whose rotary tables scale queries too."""

    config: Config

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,)."""
        return with_query_scale(super().rope_tables(positions), self.config, positions)


def with_query_scale(
    tables: Sequence[RopeTable | None], config: Config, positions: Tensor
) -> list[RopeTable | None]:
    """The tables of positions i32 (N,), with what multiplies queries there."""
    scale = query_scale(config, positions)
    return [table and table._replace(query_scale=scale) for table in tables]


def query_scale(config: Config, positions: Tensor) -> Tensor | None:
    """What multiplies queries at positions i32 (N,): f32 (N,), or None."""
    if config.query_growth is None:
        return None
    place = ops.convert(positions, dtype=DType.F32)
    contexts = ops.floor(place / ops.full_like(place, float(config.original_context)))
    return ops.log_plus_one(contexts) * config.query_growth + 1.0


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. A window holds for every layer."""
    data = text_section(data, "mistral", "ministral3")
    fields = from_config_json(data)
    window = data.size("sliding_window", default=None)
    return Config(
        **fields,
        **growth(data, fields["max_context"]),
        windows=(window,) * fields["layers"] if window else (),
    )


def text_section(data: ConfigJson, *model_types: str) -> ConfigJson:
    """The part of config.json for the text model; raises OtherFamily for another `model_type`."""
    text = data.text_section(tied=None)
    model_type = text.text("model_type", default=model_types[0])
    if text is not data and model_type not in model_types:
        raise OtherFamily(f"config.json: text_config: model_type: got {model_type!r:.80}")
    return text


def growth(data: ConfigJson, max_context: int) -> dict[str, Any]:
    """The fields that `Config` adds to `DecoderConfig`, from config.json."""
    rope, _ = data.rope_section()
    rope.ignore("max_position_embeddings", "type")
    return {
        "query_growth": rope.number("llama_4_scaling_beta", default=None),
        "original_context": rope.size("original_max_position_embeddings", default=max_context),
    }


def growth_from_gguf(data: GgufMetadata, max_context: int) -> dict[str, Any]:
    """As `growth`, from GGUF metadata."""
    return {
        "query_growth": data.number("attention.temperature_scale", default=None),
        "original_context": data.size("rope.scaling.original_context_length", default=max_context),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    return Config(**fields, **growth_from_gguf(data, fields["max_context"]))


# Of the text model, and of the tower beside it.
PREFIXES = ("model.", "", "model.language_model.", "language_model.model.")
TOWER = ("vision_tower.", "multi_modal_projector.")
ARCHITECTURE = Architecture(
    name="mistral3",
    config=Config,
    model_types=("mistral3", "ministral3"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Ministral3,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS,
        prefixes=PREFIXES,
        others=TOWER,
    ),
)
