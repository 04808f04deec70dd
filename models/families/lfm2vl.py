"""LFM2-VL: LFM2 that reads images of any size, and cuts large ones into tiles.

Source: "LFM2 Technical Report" (2025), and the model `lfm2_vl` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import GridInput, ImageTiles
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.families import lfm2
from hearthd.models.towers import siglip, siglip2

if TYPE_CHECKING:
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_NORM_EPS = 1e-5
# The settings of the processor, which older files also have in config.json.
_PROCESSOR = (
    "do_image_splitting", "encoder_patch_size", "max_image_tokens", "max_num_patches",
    "max_pixels_tolerance", "max_tiles", "min_image_tokens", "min_tiles", "tile_size",
    "use_image_special_tokens", "use_thumbnail",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(lfm2.Config, siglip2.TowerConfig):
    """The shape of a model.

    projector_hidden  the width between the matrices of the projector
    projector_norm    whether the joined patches are normalized before them
    projector_bias    whether they have biases
    """

    projector_hidden: int
    projector_norm: bool
    projector_bias: bool

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers()

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid


class Projector(nn.Module):
    """Joins the hidden states of squares of patches, and projects them to the text model."""

    def __init__(self, config: Config) -> None:
        joined, bias = config.tower_hidden * config.merged_patches**2, config.projector_bias
        self.joined = joined
        self.layer_norm = nn.LayerNorm(joined, _NORM_EPS) if config.projector_norm else None
        self.linear_1 = nn.Linear(joined, config.projector_hidden, bias=bias)
        self.linear_2 = nn.Linear(config.projector_hidden, config.hidden, bias=bias)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of a tower (N, E_v) -> (N / merged^2, E)."""
        x = ops.reshape(h, shape=(h.shape[0] * h.shape[1] // self.joined, self.joined))
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return self.linear_2(f.gelu(self.linear_1(x)))


class Lfm2Vl(lfm2.Lfm2):
    """LFM2 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = siglip2.Tower(config)
        self.projector = Projector(config)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / merged^2, E) of an image: see `siglip2.Tower`."""
        return self.projector(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text, vision = data.section("text_config"), data.section("vision_config")
    text.fixed(model_type="lfm2")
    data.fixed(projector_hidden_act="gelu", vision_feature_layer=-1)
    data.ignore("image_token_id", "image_token_index", *_PROCESSOR)
    fields = lfm2.fields_from_hugging_face(text)
    tied = data.flag("tie_word_embeddings", default=True)
    fields["tied"] = data.flag("tie_embedding", default=tied)
    return Config(
        **fields,
        **siglip2.tower_fields(vision),
        merged_patches=data.size("downsample_factor", default=2),
        projector_hidden=data.size("projector_hidden_size", default=2560),
        projector_norm=data.flag("projector_use_layernorm", default=True),
        projector_bias=data.flag("projector_bias", default=True),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `lfm2`, and of its projector."""
    text = lfm2.fields_from_gguf(data)
    keys = data.projector("lfm2", text["hidden"], "mm.2.weight", axis=0)
    return Config(
        **text,
        **siglip2.gguf_tower_fields(keys, data.rows("v.position_embd.weight")),
        merged_patches=keys.size("vision.projector.scale_factor", default=2),
        projector_hidden=data.rows("mm.1.weight"),
        projector_norm=data.has_tensor("mm.input_norm.weight"),
        projector_bias=data.has_tensor("mm.1.bias"),
    )


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    data.fixed(
        downsample_factor=config.merged_patches, encoder_patch_size=config.patch_size,
        use_thumbnail=True,
    )  # fmt: skip
    data.ignore("max_num_patches", "size")  # transformers computes both
    area = (config.patch_size * config.merged_patches) ** 2
    largest = area * data.size("max_image_tokens", default=256)
    tiles = ImageTiles(
        side=data.size("tile_size", default=512),
        min_count=data.size("min_tiles", default=2),
        max_count=data.size("max_tiles", default=10),
        min_pixels=int(largest * data.number("max_pixels_tolerance", default=2.0)),
        start="<|img_row_{row}_col_{column}|>",
        thumbnail="<|img_thumbnail|>",
    )
    splits = data.flag("do_image_splitting", default=True)
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=area * data.size("min_image_tokens", default=64),
        max_pixels=largest,
        **siglip.pixel_fields(data, "bilinear"),
        marker="<image>",
        start="<|image_start|>",
        placeholder="<image>",
        end="<|image_end|>",
        axes=1,
        tiles=tiles if splits else None,
    )


ARCHITECTURE = Architecture(
    name="lfm2-vl",
    gguf_name="lfm2",
    config=Config,
    model_types=("lfm2_vl", "lfm2-vl"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Lfm2Vl,
    images=image_input,
    tensors=replace(
        lfm2.ARCHITECTURE.tensors,
        prefixes=("model.language_model.",),
        towers={
            "tower": siglip2.tower_names("model.vision_tower.", "model.vision_tower.vision_model."),
            "projector": TensorNames(
                gguf={"layer_norm": "input_norm", "linear_1": "1", "linear_2": "2"},
                gguf_prefix="mm.",
                prefixes=("model.multi_modal_projector.",),
            ),
        },
    ),
)
