"""GLM-OCR's tower: GLM-4.1V's with normalized heads and biases, and without learned positions.

Source: the model `glm_ocr` of transformers. `N` is patches, `E` the hidden width of the tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.towers.glm4v import MergerConfig, require_published
from hearthd.models.towers.qwen3vl import FRAMES, Rotation, in_each_frame
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import patch_count

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor


class Block(nn.Module):
    """One layer: attention of every patch to every patch, and a gated MLP."""

    def __init__(self, config: MergerConfig) -> None:
        hidden, heads, ffn = config.tower_hidden, config.tower_heads, config.tower_ffn
        width, eps = hidden // heads, config.tower_norm_eps
        self.norm1 = nn.RMSNorm(hidden, eps)
        self.qkv = HeadLinear(hidden, 3 * heads, width, bias=True)
        self.q_norm = nn.RMSNorm(width, eps)
        self.k_norm = nn.RMSNorm(width, eps)
        self.proj = nn.Linear(hidden, hidden, bias=True)
        self.norm2 = nn.RMSNorm(hidden, eps)
        self.gate_proj = nn.Linear(hidden, ffn, bias=True)
        self.up_proj = nn.Linear(hidden, ffn, bias=True)
        self.down_proj = nn.Linear(ffn, hidden, bias=True)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        query, key, value = f.chunk(self.qkv(self.norm1(h)), 3, axis=1)
        query, key = rotation(self.q_norm(query)), rotation(self.k_norm(key))
        h = h + self.proj(attended(query, key, value, count))
        x = self.norm2(h)
        return h + self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: MergerConfig) -> None:
        hidden = config.tower_hidden
        self.head_width = hidden // config.tower_heads
        pixels = CHANNELS * FRAMES * config.patch_size**2
        self.patch_embedding = nn.Linear(pixels, hidden, bias=True)
        self.layers = [Block(config) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.RMSNorm(hidden, config.tower_norm_eps)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h = self.patch_embedding(in_each_frame(patches))
        rotation, count = Rotation(places, self.head_width), patch_count(grid)
        for block in self.layers:
            h = block(h, rotation, count)
        return self.post_layernorm(h)


def tower_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `MergerConfig`, from the object of config.json; raises ConfigError."""
    require_published(data, hidden)
    data.fixed(attention_bias=True)
    data.ignore("image_size")
    return {
        "patch_size": data.size("patch_size", default=14),
        "merged_patches": data.size("spatial_merge_size", default=2),
        "tower_layers": data.size("depth", default=24),
        "tower_hidden": data.size("hidden_size", default=1024),
        "tower_ffn": data.size("intermediate_size", default=4096),
        "tower_heads": data.size("num_heads", default=16),
        "tower_norm_eps": data.number("rms_norm_eps", default=1e-5),
        "projector_ffn": CHANNELS * hidden,
    }


def gguf_tower_fields(data: ProjectorMetadata, hidden: int) -> dict[str, Any]:
    """As `tower_fields`, from the keys of a projector's GGUF file; raises ConfigError."""
    data.ignore("vision.image_size")
    return {
        "patch_size": data.size("vision.patch_size"),
        "merged_patches": data.size("vision.spatial_merge_size", default=2),
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": data.size("vision.feed_forward_length"),
        "tower_heads": data.size("vision.attention.head_count"),
        "tower_norm_eps": data.number("vision.attention.layer_norm_epsilon"),
        "projector_ffn": CHANNELS * hidden,
    }
