"""GLM-4.1V and GLM-4.6V-Flash (text): GLM-4, whose positions in images have several axes.

Source: "GLM-4.5V and GLM-4.1V-Thinking" (2025), and the model `glm4v_text` of transformers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.layers import Attention, FusedMLP
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.families import glm4
from hearthd.models.families.gemma3 import GemmaBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

SHARE = 0.5  # of the columns of a head that turn
SECTIONS = (8, 12, 12)
_SECTIONS_KEY = "rope.dimension_sections"


class Glm4v(PartialRopeModel):
    """Blocks with norms before and after, and one projection to gate and up."""

    def __init__(self, config: PartialRopeConfig) -> None:
        attention = (Attention(config) for _ in range(config.layers))
        super().__init__(
            config, [GemmaBlock(config, layer, FusedMLP(config)) for layer in attention]
        )


def text_section(data: ConfigJson) -> ConfigJson:
    """The part of config.json for the text model."""
    data.ignore("image_start_token_id", "image_end_token_id")
    data.ignore("video_start_token_id", "video_end_token_id")
    data.assume(tie_word_embeddings=False)
    return data.text_section(tied=None)


def text_fields(data: ConfigJson, *, kind: str = "glm4v_text", bias: bool = True) -> dict[str, Any]:
    """The fields of a text model. The projection of attention's result has no bias."""
    text = text_section(data)
    if (got := text.text("model_type", default=kind)) != kind:
        raise OtherFamily(f"config.json: text_config: model_type: got {got!r:.80}, not {kind}")
    text.assume(attention_bias=bias)
    text.ignore("num_nextn_predict_layers")
    return partial_fields(text, SHARE) | {"output_bias": False}


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json."""
    section, _ = data.section("text_config").rope_section()
    section.ignore("mrope_section")
    return PartialRopeConfig(**text_fields(data))


def from_gguf(data: GgufMetadata) -> PartialRopeConfig:
    """Read GGUF metadata; raises OtherFamily for GLM-4's, which has one axis of positions."""
    if not data.counts(_SECTIONS_KEY, default=()):
        raise OtherFamily(f"glm4.{_SECTIONS_KEY} is missing: the file is GLM-4's")
    return PartialRopeConfig(**gguf_text_fields(data))


def gguf_text_fields(data: GgufMetadata) -> dict[str, Any]:
    """As `text_fields`, from metadata. A layer that predicts further tokens follows the others."""
    fields = partial_fields_from_gguf(data, SHARE)
    return {**fields, "layers": fields["layers"] - data.count("nextn_predict_layers", default=0)}


def gguf_sections(data: GgufMetadata) -> list[int]:
    """The pairs of columns that turn by each axis, and zeros."""
    return data.counts(_SECTIONS_KEY, default=SECTIONS)


ARCHITECTURE = Architecture(
    name="glm4v",
    gguf_name="glm4",
    config=PartialRopeConfig,
    model_types=("glm4v", "glm46v"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4v,
    tensors=replace(
        glm4.ARCHITECTURE.tensors,
        prefixes=("model.language_model.", "model.", ""),
        others=("visual.",),
        # The converter puts the columns that turn half after half; those behind them turn nowhere.
        gguf_interleaved=False,
        head_width=lambda config: config.rotary_width,
    ),
)
