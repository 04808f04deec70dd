"""GLM-4.1V's tower: the patches of an image of any size to rows of embeddings.

Source: "GLM-4.5V and GLM-4.1V-Thinking" (2025), and the model `glm4v` of transformers. `N` is
patches, `E` the hidden width of the tower, `M` the patches that give one row of embeddings: squares
of patches, which follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.towers.bicubic import bicubic_positions
from hearthd.models.towers.qwen3vl import FRAMES, Rotation, in_each_frame
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import GridConfig, TableConfig, patch_count

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_MERGER_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class MergerConfig(GridConfig):
    """The shape of a tower with GLM's merger.

    projector_ffn  the width between the last matrices of the merger
    """

    tower_norm_eps: float
    projector_ffn: int


@dataclass(frozen=True, kw_only=True)
class TowerConfig(MergerConfig, TableConfig):
    """The shape of a tower, as fields of the configuration of a model that has one."""


class Block(nn.Module):
    """One layer: attention of every patch to every patch, and a gated MLP."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, self.heads = config.tower_hidden, config.tower_heads
        eps, ffn = config.tower_norm_eps, config.tower_ffn
        self.norm1 = nn.RMSNorm(hidden, eps)
        self.qkv = HeadLinear(hidden, 3 * self.heads, hidden // self.heads)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.RMSNorm(hidden, eps)
        self.gate_proj = nn.Linear(hidden, ffn)
        self.up_proj = nn.Linear(hidden, ffn)
        self.down_proj = nn.Linear(ffn, hidden)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        query, key, value = f.chunk(self.qkv(self.norm1(h)), 3, axis=1)
        h = h + self.proj(attended(rotation(query), rotation(key), value, count))
        x = self.norm2(h)
        return h + self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, eps = config.tower_hidden, config.tower_norm_eps
        self.table_side, self.head_width = config.table_side, hidden // config.tower_heads
        pixels = CHANNELS * FRAMES * config.patch_size**2
        self.patch_embedding = nn.Linear(pixels, hidden, bias=True)
        self.post_conv_layernorm = nn.RMSNorm(hidden, eps)
        self.position_embedding = nn.Embedding(config.table_side**2, hidden)
        self.layers = [Block(config) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.RMSNorm(hidden, eps)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h = self.post_conv_layernorm(self.patch_embedding(in_each_frame(patches)))
        table = self.position_embedding.weight
        h = h + bicubic_positions(table, self.table_side, places, grid)
        rotation, count = Rotation(places, self.head_width), patch_count(grid)
        for block in self.layers:
            h = block(h, rotation, count)
        return self.post_layernorm(h)


class Merger(nn.Module):
    """Joins the hidden states of squares of patches, and projects them to the text model."""

    def __init__(self, config: MergerConfig, hidden: int) -> None:
        self.merged, ffn = config.merged_patches**2, config.projector_ffn
        self.downsample = nn.Linear(config.tower_hidden * self.merged, hidden, bias=True)
        self.proj = nn.Linear(hidden, hidden)
        self.post_projection_norm = nn.LayerNorm(hidden, _MERGER_EPS)
        self.gate_proj = nn.Linear(hidden, ffn)
        self.up_proj = nn.Linear(hidden, ffn)
        self.down_proj = nn.Linear(ffn, hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of the tower (N, E) -> rows of embeddings (N / M, hidden)."""
        count, width = h.shape
        squares = ops.reshape(h, shape=(count // self.merged, self.merged, width))
        by_channel = f.flatten(ops.transpose(squares, order=(0, 2, 1)), first=1)
        x = self.proj(self.downsample(by_channel))
        x = f.gelu(self.post_projection_norm(x))
        return self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


def require_published(data: ConfigJson, hidden: int) -> None:
    """Raise ConfigError for what no published tower with GLM's merger has."""
    data.fixed(
        hidden_act="silu", in_channels=CHANNELS, temporal_patch_size=FRAMES, out_hidden_size=hidden
    )
    data.ignore("attention_dropout", "hidden_dropout_prob")
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=1e4)


def tower_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the object of config.json; raises ConfigError."""
    require_published(data, hidden)
    data.fixed(attention_bias=False)
    patch = data.size("patch_size", default=14)
    return {
        "patch_size": patch,
        "merged_patches": data.size("spatial_merge_size", default=2),
        "table_side": data.size("image_size", default=336) // patch,
        "tower_layers": data.size("depth", default=24),
        "tower_hidden": data.size("hidden_size", default=1536),
        "tower_ffn": hidden,
        "tower_heads": data.size("num_heads", default=12),
        "tower_norm_eps": data.number("rms_norm_eps", default=1e-5),
        "projector_ffn": data.size("intermediate_size", default=13696),
    }


def gguf_tower_fields(data: ProjectorMetadata, hidden: int) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError."""
    patch = data.size("vision.patch_size")
    return {
        "patch_size": patch,
        "merged_patches": data.size("vision.spatial_merge_size", default=2),
        "table_side": data.size("vision.image_size") // patch,
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": hidden,
        "tower_heads": data.size("vision.attention.head_count"),
        "tower_norm_eps": data.number("vision.attention.layer_norm_epsilon"),
        # Of the merger: the layers' width is the text model's.
        "projector_ffn": data.size("vision.feed_forward_length"),
    }


def tower_names(*prefixes: str) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a merger, in folders after one of the prefixes."""
    mlp = {f"{part}_proj": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    tower = TensorNames(
        gguf={
            "patch_embedding": "patch_embd",
            "post_conv_layernorm": "norm_embd",
            "position_embedding": "position_embd",
            "norm1": "ln1",
            "qkv": "attn_qkv",
            "q_norm": "attn_q_norm",
            "k_norm": "attn_k_norm",
            "proj": "attn_out",
            "norm2": "ln2",
            **{f"{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
            "post_layernorm": "post_ln",
        },
        gguf_prefix="v.",
        folder={
            "patch_embedding": "patch_embed.proj",
            "position_embedding": "embeddings.position_embedding",
            "qkv": "attn.qkv",
            "q_norm": "attn.q_norm",
            "k_norm": "attn.k_norm",
            "proj": "attn.proj",
            **mlp,
        },
        layers="blocks",
        prefixes=prefixes,
    )
    merger = TensorNames(
        gguf={
            "downsample": "patch_merger",
            "proj": "model.fc",
            "post_projection_norm": "post_norm",
            "gate_proj": "gate",
            "up_proj": "up",
            "down_proj": "down",
        },
        gguf_prefix="mm.",
        folder={
            "downsample": "downsample",
            **{name: f"merger.{name}" for name in ("proj", "post_projection_norm", *mlp)},
        },
        prefixes=prefixes,
    )
    return {"tower": tower, "merger": merger}
