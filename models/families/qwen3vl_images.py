"""Qwen3-VL with images: Qwen3 with a tower, some of whose inner layers the text model reads too.

Source: "Qwen3-VL Technical Report" (2025), and the model `qwen3_vl` of transformers. Rows of an
image have rotary positions of three axes, as in Qwen3.5 (M-RoPE: see qwen35_images.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.image_positions import AxesConfig, InterleavedAxesModel
from hearthd.models.dsl import ops
from hearthd.models.families import qwen3, qwen3vl, qwen35_images
from hearthd.models.towers import qwen3vl as towers

if TYPE_CHECKING:
    from hearthd.bundle import GridInput
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

SECTIONS = (24, 20, 20)
_STACKED = (8, 16, 24)


@dataclass(frozen=True, kw_only=True)
class Config(AxesConfig, towers.DeepStackConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.stacked_layers)
        if len(self.is_stacked) != self.tower_layers or count > self.layers:
            raise ConfigError(
                f"deepstack_visual_indexes: {count} layers of {len(self.is_stacked)}, expected at "
                f"most {self.layers} of {self.tower_layers}"
            )

    @property
    @override
    def row_width(self) -> int:
        return (1 + len(self.stacked_layers)) * self.hidden


class DeepStackReader(InterleavedAxesModel):
    """A text model with a tower, and mergers of inner layers of it."""

    config: Config

    def add_tower(self, config: Config) -> None:
        """Add the tower."""
        self.tower = towers.Tower(config)
        self.merger = towers.Merger(config, config.hidden)
        self.deepstack = towers.DeepStack(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, parts * E) of an image: see `qwen3vl.Tower`."""
        states = self.tower.states(patches, places, grid)
        inner = [states[layer] for layer in self.config.stacked_layers]
        added = [merger(h) for merger, h in zip(self.deepstack.layers, inner, strict=True)]
        rows = self.merger(self.tower.post_layernorm(states[-1]))
        return ops.concatenate(rows, *added, axis=1) if added else rows


class Qwen3VlImages(DeepStackReader, qwen3.Qwen3):
    """Qwen3 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def image_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `Config` that text models lack, from config.json; raises ConfigError."""
    section, _ = data.section("text_config").rope_section()
    section.fixed(mrope_interleaved=True)
    vision = data.section("vision_config")
    fields = towers.tower_fields(vision, hidden)
    chosen = vision.counts("deepstack_visual_indexes", default=_STACKED)
    if chosen != sorted({*chosen} & {*range(fields["tower_layers"])}):
        raise ConfigError(
            f"deepstack_visual_indexes: got {chosen!r:.80}, expected rising numbers below "
            f"{fields['tower_layers']}"
        )
    return {
        **fields,
        "is_stacked": tuple(layer in chosen for layer in range(fields["tower_layers"])),
        "rope_sections": tuple(section.counts("mrope_section", default=SECTIONS)),
    }


def gguf_image_fields(data: GgufMetadata, hidden: int) -> dict[str, Any]:
    """The fields of `Config` that text models lack, from metadata; raises ConfigError."""
    sections, keys = qwen35_images.sections_and_projector(data, hidden, SECTIONS)
    fields = towers.gguf_tower_fields(keys)
    stacked = tuple(keys.flags("vision.is_deepstack_layers")) or (False,) * fields["tower_layers"]
    if (count := data.count("n_deepstack_layers", default=0)) != sum(stacked):
        raise ConfigError(
            f"n_deepstack_layers: got {count}, expected {sum(stacked)}, as the projector has; "
            "specify the projector of this model with --mmproj"
        )
    return {**fields, "is_stacked": stacked, "rope_sections": sections}


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text = asdict(qwen3vl.ARCHITECTURE.read_config_json(data))
    return Config(**text, **image_fields(data, text["hidden"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen3vl`, and of its projector."""
    text = asdict(qwen3vl.ARCHITECTURE.read_gguf(data))
    return Config(**text, **gguf_image_fields(data, text["hidden"]))


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    parts = config.row_width // config.hidden
    return replace(qwen35_images.image_input(config, data), parts=parts)


def with_tower(architecture: Architecture[Any], **changes: Any) -> Architecture[Any]:
    """A text model's architecture, with the names of a tower."""
    names = towers.deepstack_names("model.visual.", "visual.")
    tensors = replace(architecture.tensors, others=(), towers=names)
    changes = {"gguf_name": architecture.name, "images": image_input, **changes}
    return replace(architecture, tensors=tensors, **changes)


ARCHITECTURE = with_tower(
    qwen3vl.ARCHITECTURE,
    name="qwen3vl-images",
    config=Config,
    model_types=("qwen3_vl",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3VlImages,
)
