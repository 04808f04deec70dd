"""Qwen2.5-VL's tower: the patches of an image of any size to hidden states.

Source: "Qwen2.5-VL Technical Report" (Bai et al., 2025), and the model `qwen2_5_vl` of
transformers. `N` is patches, `U` the squares of patches that give a row of embeddings, `E` the
hidden width of the tower. In most layers a patch attends to the patches in its window alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.towers.qwen3vl import FRAMES, Rotation, in_each_frame
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.square_windows import SquareWindows, attended_in_windows
from hearthd.models.towers.tower_config import GridConfig, patch_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-6
_WINDOW = 112  # pixels of a side of a window


@dataclass(frozen=True, kw_only=True)
class TowerConfig(GridConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    window_squares  squares of patches of a side of a window
    attends_to_all  by layer, whether a patch attends to all patches
    """

    window_squares: int
    attends_to_all: tuple[bool, ...]


class Block(nn.Module):
    """One layer: attention and a gated MLP, each normalized before."""

    def __init__(self, config: TowerConfig, layer: int) -> None:
        hidden, heads, ffn = config.tower_hidden, config.tower_heads, config.tower_ffn
        self.has_windows = not config.attends_to_all[layer]
        self.window_patches = (config.window_squares * config.merged_patches) ** 2
        self.norm1 = nn.RMSNorm(hidden, _EPS)
        self.q_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.k_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.v_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.proj = nn.Linear(hidden, hidden, bias=True)
        self.norm2 = nn.RMSNorm(hidden, _EPS)
        self.gate_proj = nn.Linear(hidden, ffn, bias=True)
        self.up_proj = nn.Linear(hidden, ffn, bias=True)
        self.down_proj = nn.Linear(ffn, hidden, bias=True)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor, windows: Tensor) -> Tensor:
        """(N, E) -> (N, E); `windows` i32 (N,) has the number of each patch's window.

        The first `count` i32 (1,) patches are the image's.
        """
        x = self.norm1(h)
        heads = rotation(self.q_proj(x)), rotation(self.k_proj(x)), self.v_proj(x)
        if self.has_windows:
            mixed = attended_in_windows(*heads, windows, self.window_patches)
        else:
            mixed = attended(*heads, count)
        h = h + self.proj(mixed)
        x = self.norm2(h)
        return h + self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: TowerConfig) -> None:
        self.head_width = config.tower_hidden // config.tower_heads
        self.merged, self.window_squares = config.merged_patches, config.window_squares
        pixels = CHANNELS * FRAMES * config.patch_size**2
        self.patch_embedding = nn.Linear(pixels, config.tower_hidden)
        self.layers = [Block(config, layer) for layer in range(config.tower_layers)]
        self.ln_q = nn.RMSNorm(config.tower_hidden, _EPS)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        squares = SquareWindows(grid, patches.shape[0], self.merged, self.window_squares)
        h = squares.by_window(self.patch_embedding(in_each_frame(patches)))
        places = squares.by_window(ops.transpose(places, order=(1, 0)))
        places = ops.transpose(places, order=(1, 0))
        rotation, count = Rotation(places, self.head_width), patch_count(grid)
        windows = squares.numbers(places, count)
        for block in self.layers:
            h = block(h, rotation, count, windows)
        return squares.by_row(self.ln_q(h))


def tower_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(
        hidden_act="silu", in_channels=CHANNELS, in_chans=CHANNELS, temporal_patch_size=FRAMES,
        out_hidden_size=hidden,
    )  # fmt: skip
    data.ignore("spatial_patch_size", "tokens_per_second")
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=1e4)
    layers = data.size("depth", default=32)
    all_layers = data.counts("fullatt_block_indexes", default=(7, 15, 23, 31))
    patch, merged = (
        data.size("patch_size", default=14), data.size("spatial_merge_size", default=2)
    )  # fmt: skip
    return {
        "patch_size": patch,
        "merged_patches": merged,
        "window_squares": data.size("window_size", default=_WINDOW) // merged // patch,
        "attends_to_all": tuple(layer in all_layers for layer in range(layers)),
        "tower_layers": layers,
        "tower_hidden": data.size("hidden_size"),
        "tower_ffn": data.size("intermediate_size", default=3420),
        "tower_heads": data.size("num_heads", default=16),
    }


def gguf_tower_fields(data: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError."""
    # Of images of another size the tower computes as well; the norms' number is a constant.
    data.ignore("vision.image_size", "vision.attention.layer_norm_epsilon")
    layers, pattern = data.size("vision.block_count"), data.size("vision.n_wa_pattern")
    patch, merged = (
        data.size("vision.patch_size"),
        data.size("vision.spatial_merge_size", default=2),
    )
    if layers % pattern:
        raise ConfigError(f"clip.vision.n_wa_pattern: got {pattern}, of {layers} layers")
    return {
        "patch_size": patch,
        "merged_patches": merged,
        "window_squares": _WINDOW // merged // patch,
        "attends_to_all": tuple((layer + 1) % pattern == 0 for layer in range(layers)),
        "tower_layers": layers,
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": data.size("vision.feed_forward_length"),
        "tower_heads": data.size("vision.attention.head_count"),
    }


# The names of the matrices of an MLP, in GGUF files and in folders.
_MLP = {f"{part}_proj": (f"ffn_{part}", f"mlp.{part}_proj") for part in ("gate", "up", "down")}


def tower_names(
    *prefixes: str,
    mlp: Mapping[str, tuple[str, str]] = _MLP,
    attention: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a merger, in folders after one of the prefixes.

    `attention` has the names of its matrices in folders, where they are not joined.
    """
    tower = TensorNames(
        gguf={
            "patch_embedding": "patch_embd",
            "norm1": "ln1",
            "q_proj": "attn_q",
            "k_proj": "attn_k",
            "v_proj": "attn_v",
            "proj": "attn_out",
            "norm2": "ln2",
            **{part: gguf for part, (gguf, _) in mlp.items()},
            "ln_q": "post_ln",
        },
        gguf_prefix="v.",
        folder={
            "patch_embedding": "patch_embed.proj",
            "proj": "attn.proj",
            **attention,
            **{part: folder for part, (_, folder) in mlp.items()},
            "ln_q": "merger.ln_q",
        },
        joined={"attn.qkv": ("q_proj", "k_proj", "v_proj")},
        layers="blocks",
        prefixes=prefixes,
    )
    merger = TensorNames(
        gguf={"fc1": "0", "fc2": "2"},
        gguf_prefix="mm.",
        folder={"fc1": "mlp.0", "fc2": "mlp.2"},
        prefixes=tuple(f"{prefix}merger." for prefix in prefixes),
    )
    return {"tower": tower, "merger": merger}
