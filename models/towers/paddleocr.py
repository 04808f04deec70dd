"""PaddleOCR-VL's tower: SigLIP with rotary positions too, for images of any size.

Source: "PaddleOCR-VL: Boosting Multilingual Document Parsing via a 0.9B Ultra-Compact
Vision-Language Model" (2025), and the model `paddleocr_vl` of transformers. `N` is patches, `E` the
hidden width of the tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn
from hearthd.models.towers import qwen3vl, siglip, siglip2
from hearthd.models.towers.siglip import CHANNELS
from hearthd.models.towers.tower_config import patch_count, square_side

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.towers.siglip2 import TowerConfig

_PROJECTOR_EPS = 1e-5


class Tower(siglip2.Tower):
    """The whole tower."""

    antialiased = False

    def __init__(self, config: TowerConfig) -> None:
        super().__init__(config)
        self.head_width = config.tower_hidden // config.tower_heads

    @override
    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h, count = self.embed(patches, places, grid), patch_count(grid)
        rotation = qwen3vl.Rotation(places, self.head_width)
        for block in self.layers:
            h = block(h, count, rotation)
        return self.post_layernorm(h)


class Projector(qwen3vl.Merger):
    """A merger that normalizes each patch."""

    def __init__(self, config: TowerConfig, hidden: int) -> None:
        super().__init__(config, hidden)
        self.pre_norm = nn.LayerNorm(config.tower_hidden, _PROJECTOR_EPS)

    @override
    def joined(self, h: Tensor) -> Tensor:
        return super().joined(self.pre_norm(h))


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(hidden_act="gelu_pytorch_tanh", num_channels=CHANNELS)
    data.ignore("attention_dropout", "pad_token_id", "temporal_patch_size", "tokens_per_second")
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=1e4)
    patch = data.size("patch_size", default=14)
    return {
        "patch_size": patch,
        "merged_patches": data.size("spatial_merge_size", default=2),
        "table_side": data.size("image_size", default=384) // patch,
        "tower_layers": data.size("num_hidden_layers", default=27),
        "tower_hidden": data.size("hidden_size", default=1152),
        "tower_ffn": data.size("intermediate_size", default=4304),
        "tower_heads": data.size("num_attention_heads", default=16),
        "tower_norm_eps": data.number("layer_norm_eps", default=1e-6),
    }


def gguf_tower_fields(data: ProjectorMetadata, positions: int) -> dict[str, Any]:
    """As `tower_fields`, from the keys of a projector's GGUF file and the rows of its table."""
    fields = siglip.gguf_tower_fields(data)
    del fields["image_size"]  # the converter writes the side of the largest image
    data.ignore("vision.image_min_pixels", "vision.image_max_pixels")
    return {
        **fields,
        "merged_patches": 2,
        "table_side": square_side(positions, "v.position_embd.weight"),
    }


def tower_names() -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a projector."""
    projector = TensorNames(
        gguf={"pre_norm": "input_norm", "fc1": "1", "fc2": "2"},
        gguf_prefix="mm.",
        folder={"fc1": "linear_1", "fc2": "linear_2"},
        prefixes=("mlp_AR.", "model.projector."),
    )
    tower = siglip.tower_names("visual.vision_model.", "model.visual.vision_model.")
    return {"tower": tower, "merger": projector}
