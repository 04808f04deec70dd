"""Gemma 3 with images: SigLIP's tower, whose patches are averaged, in front of the text model.

Source: "Gemma 3 Technical Report" (2025), and the model `gemma3` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import ImageInput
from hearthd.models.config import ConfigError, ImageShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn, ops
from hearthd.models.families import gemma3
from hearthd.models.towers import siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Config(gemma3.Config, siglip.TowerConfig):
    """The shape of a model.

    pooled_patches  patches of a side of the square whose mean gives one row of embeddings
    """

    pooled_patches: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower(self.pooled_patches)
        smallest = min((window for window in self.windows if window), default=self.image.rows)
        if smallest < self.image.rows:
            raise ConfigError(
                f"a window of {smallest} positions, expected at least the {self.image.rows} rows "
                "of an image, which see each other"
            )

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each square of patches."""
        rows = (self.patches_per_side // self.pooled_patches) ** 2
        return ImageShape(self.image_size, rows)

    @override
    def looks_ahead(self, layer: int) -> bool:
        """The rows of an image see each other in all layers."""
        return True


class Projector(nn.Module):
    """The means of squares of patches, normalized and projected to the text model."""

    def __init__(self, config: Config) -> None:
        self.side = config.pooled_patches
        self.mm_soft_emb_norm = nn.RMSNorm(config.tower_hidden, config.tower_norm_eps)
        self.mm_input_projection = nn.Linear(config.tower_hidden, config.hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of a tower (N, E_v) -> (N / side^2, E)."""
        count, hidden = h.shape
        joined = siglip.squares(h, self.side)
        patches = ops.reshape(joined, shape=(count // self.side**2, self.side**2, hidden))
        mean = ops.reduce_sum(patches, axes=(1,)) * self.side**-2
        return self.mm_input_projection(self.mm_soft_emb_norm(mean))


class Gemma3Images(gemma3.Gemma3):
    """Gemma 3 with a tower for images of one size."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = siglip.Tower(config)
        self.projector = Projector(config)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.projector(self.tower(pixels))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = gemma3.text_fields(data.text_section())
    vision = data.section("vision_config")
    vision.fixed(vision_use_head=False)
    return _config(
        fields, siglip.tower_fields(vision), data.size("mm_tokens_per_image", default=_ROWS)
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma3`, and of its projector."""
    text = gemma3.fields_from_gguf(data)
    keys = data.projector("gemma3", text["hidden"], "mm.input_projection.weight", axis=1)
    pooled = keys.size("vision.projector.scale_factor", default=4)
    return Config(**text, **siglip.gguf_tower_fields(keys), pooled_patches=pooled)


def _config(text: dict[str, object], tower: dict[str, int], rows: int) -> Config:
    """The configuration of a model with `rows` rows for an image; raises ConfigError."""
    across = round(rows**0.5)
    patches = tower["image_size"] // tower["patch_size"]
    if across**2 != rows or patches % across:
        raise ConfigError(
            f"mm_tokens_per_image: got {rows}, expected squares of the {patches} x {patches} "
            "patches"
        )
    return Config(**text, **tower, pooled_patches=patches // across)  # type: ignore[arg-type]


def image_input(config: Config, data: ConfigJson) -> ImageInput:
    """Read the settings of the processor: an image is one square."""
    data.fixed(do_pan_and_scan=False, image_seq_length=config.image.rows)
    data.ignore(
        "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    )  # fmt: skip
    if data.has("size"):
        data.section("size").fixed(height=config.image.side, width=config.image.side)
    return ImageInput(
        side=config.image.side,
        rows=config.image.rows,
        longest_edge=None,
        **siglip.pixel_fields(data, "bilinear"),
        marker="<start_of_image>",
        placeholder="<image_soft_token>",
        start="\n\n<start_of_image>",
        end="<end_of_image>\n\n",
        both_ways=True,
    )


ARCHITECTURE = Architecture(
    name="gemma3-images",
    gguf_name="gemma3",
    config=Config,
    model_types=("gemma3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma3Images,
    images=image_input,
    tensors=replace(
        gemma3.ARCHITECTURE.tensors,
        others=(),
        towers={
            "tower": siglip.tower_names(
                "vision_tower.vision_model.",
                "vision_tower.",
                "model.vision_tower.vision_model.",
                "model.vision_tower.",
            ),
            "projector": TensorNames(
                gguf={
                    "mm_soft_emb_norm": "soft_emb_norm",
                    "mm_input_projection": "input_projection",
                },
                gguf_prefix="mm.",
                prefixes=("multi_modal_projector.", "model.multi_modal_projector."),
                folder={"mm_input_projection": "mm_input_projection_weight"},
                transposed=("mm_input_projection",),
                transposed_in_gguf=("mm_input_projection",),
                norm_offset=1.0,
            ),
        },
    ),
)
