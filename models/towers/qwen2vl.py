"""Qwen2-VL's tower: the patches of an image of any size to hidden states.

Source: "Qwen2-VL" (Wang et al., 2024), and the model `qwen2_vl` of transformers. `N` is patches,
`E` the hidden width of the tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.dsl import nn
from hearthd.models.towers import qwen25vl
from hearthd.models.towers.qwen3vl import FRAMES, Rotation, in_each_frame
from hearthd.models.towers.siglip import CHANNELS, attended, quick_gelu
from hearthd.models.towers.tower_config import patch_count

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.decoder.tensor_names import TensorNames
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.towers.tower_config import GridConfig

_EPS = 1e-6


class Block(nn.Module):
    """One layer: attention of every patch to every patch and MLP, each normalized before."""

    def __init__(self, config: GridConfig) -> None:
        hidden, heads = config.tower_hidden, config.tower_heads
        self.norm1 = nn.LayerNorm(hidden, _EPS)
        self.q_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.k_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.v_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.proj = nn.Linear(hidden, hidden, bias=True)
        self.norm2 = nn.LayerNorm(hidden, _EPS)
        self.fc1 = nn.Linear(hidden, config.tower_ffn, bias=True)
        self.fc2 = nn.Linear(config.tower_ffn, hidden, bias=True)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        x = self.norm1(h)
        query, key = rotation(self.q_proj(x)), rotation(self.k_proj(x))
        h = h + self.proj(attended(query, key, self.v_proj(x), count))
        return h + self.fc2(quick_gelu(self.fc1(self.norm2(h))))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: GridConfig) -> None:
        self.head_width = config.tower_hidden // config.tower_heads
        pixels = CHANNELS * FRAMES * config.patch_size**2
        self.patch_embedding = nn.Linear(pixels, config.tower_hidden)
        self.layers = [Block(config) for _ in range(config.tower_layers)]
        self.ln_q = nn.LayerNorm(config.tower_hidden, _EPS)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h = self.patch_embedding(in_each_frame(patches))
        rotation, count = Rotation(places, self.head_width), patch_count(grid)
        for block in self.layers:
            h = block(h, rotation, count)
        return self.ln_q(h)


def tower_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `GridConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(
        hidden_act="quick_gelu", in_channels=CHANNELS, in_chans=CHANNELS,
        temporal_patch_size=FRAMES, hidden_size=hidden,
    )  # fmt: skip
    data.ignore("spatial_patch_size")
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=1e4)
    width = data.size("embed_dim", default=1280)
    return {
        "patch_size": data.size("patch_size", default=14),
        "merged_patches": data.size("spatial_merge_size", default=2),
        "tower_layers": data.size("depth", default=32),
        "tower_hidden": width,
        "tower_ffn": width * data.size("mlp_ratio", default=4),
        "tower_heads": data.size("num_heads", default=16),
    }


def gguf_tower_fields(data: ProjectorMetadata, ffn: int) -> dict[str, Any]:
    """The fields of `GridConfig`, from the keys of a projector's GGUF file; raises ConfigError.

    `ffn` is the width of the tensors: the converter writes another one.
    """
    data.ignore(
        "vision.image_size", "vision.attention.layer_norm_epsilon", "vision.feed_forward_length"
    )
    return {
        "patch_size": data.size("vision.patch_size"),
        "merged_patches": data.size("vision.spatial_merge_size", default=2),
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": ffn,
        "tower_heads": data.size("vision.attention.head_count"),
    }


def tower_names(*prefixes: str) -> dict[str, TensorNames]:
    """The names of Qwen2.5-VL, with an MLP without a gate."""
    return qwen25vl.tower_names(
        *prefixes, mlp={"fc1": ("ffn_up", "mlp.fc1"), "fc2": ("ffn_down", "mlp.fc2")}
    )
