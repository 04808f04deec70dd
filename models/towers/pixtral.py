"""Pixtral's tower: the patches of an image of any size to rows of embeddings.

Source: "Pixtral 12B" (Agrawal et al., 2024), and the models `pixtral` and `mistral3` of
transformers. `N` is patches, `E` the hidden width of the tower, `M` the patches that give one row
of embeddings: squares of patches, which follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.towers import clip
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import GridConfig, axis_of, patch_count

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class TowerConfig(GridConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    longest_edge    pixels of the longer side of the largest image
    tower_rope_base  of the rotary positions of patches
    projector_bias  whether the matrices of the projector have biases
    has_merger      whether the projector joins squares of patches by a matrix
    """

    longest_edge: int
    tower_rope_base: float
    projector_bias: bool
    has_merger: bool = True


class Rotation:
    """Cosine and sine of an image's rotary positions, each f32 (N, D / 2).

    The first quarter of a head's columns turns by the row of a patch, the second by its column:
    they have every second frequency of a head of a text model.
    """

    def __init__(self, places: Tensor, width: int, base: float) -> None:
        """Of places i32 (2, N), for heads of a width D."""
        row, column = (
            f.rope_table(axis_of(places, i), width // 2, base=base, factor=factor)
            for i, factor in enumerate((1.0, base ** (2 / width)))
        )
        self.cosine, self.sine = (
            ops.concatenate(*pair, axis=1) for pair in zip(row, column, strict=True)
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate heads (N, H, D)."""
        return f.rope(x, self.cosine, self.sine)


class Block(nn.Module):
    """One layer: attention of every patch to every patch, and a gated MLP."""

    def __init__(self, config: GridConfig) -> None:
        hidden, heads, ffn = config.tower_hidden, config.tower_heads, config.tower_ffn
        self.attention_norm = nn.RMSNorm(hidden, _EPS)
        self.q_proj = HeadLinear(hidden, heads, hidden // heads)
        self.k_proj = HeadLinear(hidden, heads, hidden // heads)
        self.v_proj = HeadLinear(hidden, heads, hidden // heads)
        self.o_proj = nn.Linear(hidden, hidden)
        self.ffn_norm = nn.RMSNorm(hidden, _EPS)
        self.gate_proj = nn.Linear(hidden, ffn)
        self.up_proj = nn.Linear(hidden, ffn)
        self.down_proj = nn.Linear(ffn, hidden)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        x = self.attention_norm(h)
        query, key = rotation(self.q_proj(x)), rotation(self.k_proj(x))
        h = h + self.o_proj(attended(query, key, self.v_proj(x), count))
        x = self.ffn_norm(h)
        return h + self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: TowerConfig) -> None:
        self.head_width = config.tower_hidden // config.tower_heads
        self.rope_base = config.tower_rope_base
        self.patch_conv = nn.Linear(CHANNELS * config.patch_size**2, config.tower_hidden)
        self.ln_pre = nn.RMSNorm(config.tower_hidden, _EPS)
        self.layers = [Block(config) for _ in range(config.tower_layers)]

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h = self.ln_pre(self.patch_conv(patches))
        rotation = Rotation(places, self.head_width, self.rope_base)
        count = patch_count(grid)
        for block in self.layers:
            h = block(h, rotation, count)
        return h


class Projector(clip.Projector):
    """Projects hidden states to the text model, of single patches or of joined squares."""

    def __init__(self, config: TowerConfig, hidden: int, eps: float) -> None:
        super().__init__(config.tower_hidden, hidden, bias=config.projector_bias)
        self.merger = Merger(config, eps) if config.has_merger else None

    @override
    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of the tower (N, E) -> rows of embeddings (N / M, hidden)."""
        return super().__call__(h if self.merger is None else self.merger(h))


class Merger(nn.Module):
    """Joins the hidden states of squares of patches."""

    def __init__(self, config: TowerConfig, eps: float) -> None:
        width, self.merged = config.tower_hidden, config.merged_patches**2
        self.norm = nn.RMSNorm(width, eps)
        self.merging_layer = nn.Linear(width * self.merged, width)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N / M, E)."""
        count, width = h.shape
        squares = ops.reshape(self.norm(h), shape=(count // self.merged, self.merged, width))
        by_channel = f.flatten(ops.transpose(squares, order=(0, 2, 1)), first=1)
        return self.merging_layer(by_channel)


def tower_fields(data: ConfigJson, vision: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from config.json and its object; raises ConfigError."""
    data.fixed(
        projector_hidden_act="gelu", vision_feature_layer=-1, vision_feature_select_strategy="full"
    )
    vision.fixed(model_type="pixtral", hidden_act="silu", num_channels=CHANNELS)
    vision.ignore("attention_dropout", "is_composition", "tie_word_embeddings")
    hidden, heads = (
        vision.size("hidden_size", default=1024),
        vision.size("num_attention_heads", default=16),
    )
    vision.fixed(head_dim=hidden // heads)
    rope, base = vision.rope_section()
    rope.ignore("rope_type", "type")
    return {
        "patch_size": vision.size("patch_size", default=14),
        "merged_patches": data.size("spatial_merge_size", default=2),
        "longest_edge": vision.size("image_size", default=1540),
        "tower_layers": vision.size("num_hidden_layers", default=24),
        "tower_hidden": hidden,
        "tower_ffn": vision.size("intermediate_size", default=4096),
        "tower_heads": heads,
        "tower_rope_base": base,
        "projector_bias": data.flag("multimodal_projector_bias", default=False),
    }


def gguf_tower_fields(data: ProjectorMetadata, *, bias: bool, merger: bool) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError.

    `bias` and `merger` are whether the file has tensors of these.
    """
    data.ignore("vision.attention.layer_norm_epsilon")  # a constant of the model
    return {
        "patch_size": data.size("vision.patch_size"),
        "merged_patches": data.size("vision.spatial_merge_size", default=1),
        "longest_edge": data.size("vision.image_size"),
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": data.size("vision.feed_forward_length"),
        "tower_heads": data.size("vision.attention.head_count"),
        "tower_rope_base": data.number("rope.freq_base", default=1e4),
        "projector_bias": bias,
        "has_merger": merger,
    }


def tower_names(
    *prefixes: str, tower: str = "vision_tower", projector: str = "multi_modal_projector"
) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a projector, in folders after the prefixes."""
    of_tower = TensorNames(
        gguf={
            "patch_conv": "patch_embd",
            "ln_pre": "pre_ln",
            "attention_norm": "ln1",
            "q_proj": "attn_q",
            "k_proj": "attn_k",
            "v_proj": "attn_v",
            "o_proj": "attn_out",
            "ffn_norm": "ln2",
            "gate_proj": "ffn_gate",
            "up_proj": "ffn_up",
            "down_proj": "ffn_down",
        },
        gguf_prefix="v.",
        interleaved=("q_proj", "k_proj"),
        head_width=lambda config: config.tower_hidden // config.tower_heads,
        folder={
            **{f"{part}_proj": f"attention.{part}_proj" for part in "qkvo"},
            **{f"{part}_proj": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
        },
        layers="transformer.layers",
        prefixes=tuple(f"{prefix}{tower}." for prefix in prefixes),
    )
    of_projector = TensorNames(
        gguf={
            "merger.norm": "input_norm",
            "merger.merging_layer": "patch_merger",
            "linear_1": "1",
            "linear_2": "2",
        },
        gguf_prefix="mm.",
        folder={"merger.norm": "norm", "merger.merging_layer": "patch_merger.merging_layer"},
        prefixes=tuple(f"{prefix}{projector}." for prefix in prefixes),
    )
    return {"tower": of_tower, "projector": of_projector}
