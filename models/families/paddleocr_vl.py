"""PaddleOCR-VL: ERNIE 4.5 0.3B that reads images of documents, of any size.

Source: "PaddleOCR-VL: Boosting Multilingual Document Parsing via a 0.9B Ultra-Compact
Vision-Language Model" (2025), and the model `paddleocr_vl` of transformers. Rows of an image have
rotary positions of three axes, as in Qwen2.5-VL: see qwen25vl_images.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.bundle import GridInput
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.image_positions import AXES, AxesConfig, AxesModel
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.llama import Llama
from hearthd.models.towers import paddleocr, siglip, siglip2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_SECTIONS = (16, 24, 24)
_LIMITS = 384**2, 1536**2  # pixels of the smallest and the largest image
_OF_TRAINING = (
    "attention_probs_dropout_prob", "compression_ratio", "hidden_dropout_prob", "ignored_index",
    "max_sequence_length", "use_flash_attention", "weight_share_add_bias",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(AxesConfig, siglip2.TowerConfig):
    """The shape of a model."""


class PaddleOcrVl(AxesModel, Llama):
    """ERNIE 4.5 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = paddleocr.Tower(config)
        self.merger = paddleocr.Projector(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; in published files, the text model has no section of its own."""
    tower = paddleocr.tower_fields(data.section("vision_config"))
    data.ignore("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    data.assume(tie_word_embeddings=True)
    text = data.text_section(tied=None)
    text.ignore(*_OF_TRAINING)
    text.fixed(use_bias=False, use_3d_rope=True, rope_is_neox_style=True, sliding_window=None)
    text.assume(rope_theta=500_000.0, head_dim=128)
    section, _ = text.rope_section()
    sections = tuple(section.counts("mrope_section", default=_SECTIONS))
    fields: dict[str, Any] = from_config_json(text, rope_scaling.of_text)
    return Config(**fields, **tower, rope_sections=sections)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `paddleocr`, and of its projector."""
    fields = from_gguf_metadata(data)
    sections = tuple(data.counts("rope.dimension_sections", default=_SECTIONS))[:AXES]
    keys = data.projector("paddleocr", fields["hidden"], "mm.2.weight", axis=0)
    tower = paddleocr.gguf_tower_fields(keys, data.rows("v.position_embd.weight"))
    return Config(**fields, **tower, rope_sections=sections)


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are those of transformers."""
    data.fixed(
        patch_size=config.patch_size, merge_size=config.merged_patches, temporal_patch_size=1
    )
    data.ignore("temporal_conv_size")
    smallest, largest = _LIMITS
    for limits in (data.section("size"), data) if data.has("size") else (data,):
        for low, high in (("shortest_edge", "longest_edge"), ("min_pixels", "max_pixels")):
            smallest = limits.size(low, default=smallest)
            largest = limits.size(high, default=largest)
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=smallest,
        max_pixels=largest,
        keeps_thin=True,
        **siglip.pixel_fields(data, "bicubic", siglip.CLIP),
        marker="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        start="<|IMAGE_START|>",
        placeholder="<|IMAGE_PLACEHOLDER|>",
        end="<|IMAGE_END|>",
        axes=AXES,
    )


ARCHITECTURE = Architecture(
    name="paddleocr-vl",
    gguf_name="paddleocr",
    config=Config,
    model_types=("paddleocr_vl",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=PaddleOcrVl,
    images=image_input,
    tensors=TensorNames(
        prefixes=("model.", "", "model.language_model."),
        others=("visual.vision_model.head.", "visual.vision_model.embeddings.packing_position"),
        towers=paddleocr.tower_names(),
    ),
)
