"""Gemma 4's tower: the patches of an image of any size to hidden states of squares of them.

Source: the model `gemma4_vision` of transformers (2026). `N` is patches, `E` the hidden width of
the tower, `M` the patches whose mean gives one row of embeddings: they follow each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.bundle import GridInput
from hearthd.models.config import ConfigError
from hearthd.models.decoder.layers import normalized
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers import siglip
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import TableConfig, axis_of, patch_count

if TYPE_CHECKING:
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_ROPE_BASE = 100.0
_ROWS, _MIN_ROWS = 280, 70  # of an image
_LINEARS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TowerConfig(TableConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    tower_head_dim      the width of a head
    tower_clips         whether the inputs and outputs of products are clamped to stored bounds
    tower_standardizes  whether a stored mean is subtracted from the result, and a factor applied
    """

    tower_head_dim: int
    tower_norm_eps: float
    tower_clips: bool
    tower_standardizes: bool

    def require_tower(self) -> None:
        """Raise ConfigError unless a head has equal parts for rows and columns, and halves."""
        self.require_layers()
        if self.tower_head_dim % 4:
            raise ConfigError(
                f"head_dim of the tower: got {self.tower_head_dim}, expected a multiple of 4"
            )


class ClippedLinear(nn.Module):
    """y = x W^T, with x and y clamped to stored bounds, if there are any."""

    def __init__(self, inputs: int, outputs: int, *, clips: bool) -> None:
        self.weight = nn.parameter(outputs, inputs, dtype=DType.F32)
        self.input_min, self.input_max, self.output_min, self.output_max = (
            nn.parameter(1, dtype=DType.F32) if clips else None for _ in range(4)
        )

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        x = _clamped(x, self.input_min, self.input_max)
        return _clamped(f.linear(x, self.weight), self.output_min, self.output_max)


def _clamped(x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """x within bounds (1,); None: x."""
    if low is None or high is None:
        return x
    return ops.minimum(ops.maximum(x, f.trailing(low, x.shape)), f.trailing(high, x.shape))


class Rotation:
    """Rotates the first half of a head by the column of a patch, the other half by its row."""

    def __init__(self, places: Tensor, width: int) -> None:
        """Of places i32 (2, N), for heads of a width D."""
        self.half = width // 2
        row, column = (f.rope_table(axis_of(places, i), self.half, base=_ROPE_BASE) for i in (0, 1))
        self.tables = column, row

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate heads (N, H, D)."""
        halves = f.split(x, (self.half, self.half), axis=2)
        turned = [f.rope(half, *table) for half, table in zip(halves, self.tables, strict=True)]
        return ops.concatenate(*turned, axis=2)


class Attention(nn.Module):
    """Attention of every patch to every patch, with normalized queries, keys and values."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, self.width = config.tower_hidden, config.tower_head_dim
        wide, clips = config.tower_heads * self.width, config.tower_clips
        self.q_proj = ClippedLinear(hidden, wide, clips=clips)
        self.k_proj = ClippedLinear(hidden, wide, clips=clips)
        self.v_proj = ClippedLinear(hidden, wide, clips=clips)
        self.o_proj = ClippedLinear(wide, hidden, clips=clips)
        self.q_norm = nn.RMSNorm(self.width, config.tower_norm_eps)
        self.k_norm = nn.RMSNorm(self.width, config.tower_norm_eps)

    def __call__(self, x: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        query, key, value = (
            f.split_heads(product(x), self.width)
            for product in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotation(self.q_norm(query)), rotation(self.k_norm(key))
        value = normalized(value, self.k_norm.eps)
        return self.o_proj(attended(query, key, value, count, scale=1.0))


class Mlp(nn.Module):
    """GeGLU."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, ffn, clips = config.tower_hidden, config.tower_ffn, config.tower_clips
        self.gate_proj = ClippedLinear(hidden, ffn, clips=clips)
        self.up_proj = ClippedLinear(hidden, ffn, clips=clips)
        self.down_proj = ClippedLinear(ffn, hidden, clips=clips)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu_tanh(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalized before and after."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, eps = config.tower_hidden, config.tower_norm_eps
        self.input_layernorm = nn.RMSNorm(hidden, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(hidden, eps)
        self.mlp = Mlp(config)
        self.post_feedforward_layernorm = nn.RMSNorm(hidden, eps)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.self_attn(self.input_layernorm(h), rotation, count)
        h = h + self.post_attention_layernorm(x)
        x = self.mlp(self.pre_feedforward_layernorm(h))
        return h + self.post_feedforward_layernorm(x)


class Standardization(nn.Module):
    """(x - b) * s."""

    def __init__(self, width: int) -> None:
        self.bias = nn.parameter(width, dtype=DType.F32)
        self.scale = nn.parameter(width, dtype=DType.F32)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return (x - f.along_last(self.bias, x)) * f.along_last(self.scale, x)


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: TowerConfig) -> None:
        hidden = config.tower_hidden
        self.table_side, self.head_dim = config.table_side, config.tower_head_dim
        self.joined = config.merged_patches**2
        self.patch_embedding = nn.Linear(CHANNELS * config.patch_size**2, hidden)
        self.position_embedding = nn.Embedding(2 * config.table_side, hidden)
        self.layers = [Block(config) for _ in range(config.tower_layers)]
        self.standardization = Standardization(hidden) if config.tower_standardizes else None

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N / M, E): see `qwen3vl.Tower`."""
        h = self.patch_embedding(patches) + self._positions(places)
        rotation, count = Rotation(places, self.head_dim), patch_count(grid)
        for block in self.layers:
            h = block(h, rotation, count)
        rows, width = h.shape
        squares = ops.reshape(h, shape=(rows // self.joined, self.joined, width))
        mean = ops.reduce_sum(squares, axes=(1,)) * (math.sqrt(width) / self.joined)
        return mean if self.standardization is None else self.standardization(mean)

    def _positions(self, places: Tensor) -> Tensor:
        """The sum of the embeddings of columns, in the table's first half, and of rows: (N, E)."""
        row, column = (axis_of(places, i) for i in (0, 1))
        return self.position_embedding(column) + self.position_embedding(row + self.table_side)


class Projector(nn.Module):
    """Normalizes rows of embeddings, and projects them to the text model."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        self.eps = eps
        self.embedding_projection = nn.Linear(width, hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, width) -> (N, hidden)."""
        return self.embedding_projection(normalized(x, self.eps))


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the object of config.json; raises ConfigError."""
    heads = data.size("num_attention_heads", default=12)
    data.fixed(
        model_type="gemma4_vision", hidden_activation="gelu_pytorch_tanh", attention_bias=False,
        num_key_value_heads=heads,
    )  # fmt: skip
    data.ignore(
        "default_output_length", "max_position_embeddings", "num_soft_tokens_per_image",
        "rope_theta",
    )  # fmt: skip
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=_ROPE_BASE)
    return {
        "patch_size": data.size("patch_size", default=16),
        "merged_patches": data.size("pooling_kernel_size", default=3),
        "table_side": data.size("position_embedding_size", default=10_240),
        "tower_layers": data.size("num_hidden_layers", default=16),
        "tower_hidden": data.size("hidden_size", default=768),
        "tower_ffn": data.size("intermediate_size", default=3072),
        "tower_heads": heads,
        "tower_head_dim": data.size("head_dim", default=64),
        "tower_norm_eps": data.number("rms_norm_eps", default=1e-6),
        "tower_clips": data.flag("use_clipped_linears", default=False),
        "tower_standardizes": data.flag("standardize", default=False),
    }


def image_input(
    grid: ImageGrid, table_side: int, data: ConfigJson, *, both_ways: bool
) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings.

    table_side  learned positions in a row and in a column
    both_ways   whether the rows of an image see each other
    """
    data.fixed(patch_size=grid.patch, pooling_kernel_size=grid.merged, do_normalize=False)
    data.ignore("image_mean", "image_std", "image_seq_length")  # it does not normalize
    rows = data.size("max_soft_tokens", default=_ROWS)
    if rows * grid.merged > table_side:
        raise ConfigError(f"max_soft_tokens: got {rows}, of {table_side} positions")
    area = (grid.patch * grid.merged) ** 2
    half = (0.5,) * CHANNELS  # the model computes 2 x - 1
    return GridInput(
        patch=grid.patch,
        merged=grid.merged,
        min_pixels=min(rows, _MIN_ROWS) * area,
        max_pixels=rows * area,
        fills=True,
        resampling=siglip.resampling(data, "bicubic"),
        mean=half,
        std=half,
        marker="<|image|>",
        start="<|image>",
        placeholder="<|image|>",
        end="<image|>",
        axes=1,
        both_ways=both_ways,
    )


def gguf_tower_fields(data: GgufMetadata, keys: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the tensors and keys of a projector; raises ConfigError."""
    keys.ignore("vision.image_size")  # it has none
    heads = keys.size("vision.attention.head_count")
    return {
        "patch_size": keys.size("vision.patch_size"),
        "merged_patches": keys.size("vision.projector.scale_factor", default=3),
        "table_side": data.rows("v.position_embd.weight", axis=1),
        "tower_layers": keys.size("vision.block_count"),
        "tower_hidden": keys.size("vision.embedding_length"),
        "tower_ffn": keys.size("vision.feed_forward_length"),
        "tower_heads": heads,
        "tower_head_dim": data.rows("v.blk.0.attn_q.weight") // heads,
        "tower_norm_eps": keys.number("vision.attention.layer_norm_epsilon"),
        "tower_clips": data.has_tensor("v.blk.0.attn_q.input_min"),
        "tower_standardizes": data.has_tensor("v.std_bias"),
    }


def tower_names(*prefixes: str) -> TensorNames:
    """The names of a tower's tensors, in folders after one of the prefixes."""
    return TensorNames(
        gguf={
            "patch_embedding": "patch_embd",
            "position_embedding": "position_embd",
            "input_layernorm": "ln1",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_out",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "post_attention_layernorm": "attn_post_norm",
            "pre_feedforward_layernorm": "ln2",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "post_feedforward_layernorm": "ffn_post_norm",
            "standardization.bias": "std_bias",
            "standardization.scale": "std_scale",
        },
        gguf_prefix="v.",
        folder={
            "patch_embedding": "patch_embedder.input_proj",
            "position_embedding.weight": "patch_embedder.position_embedding_table",
            "standardization.bias": "std_bias",
            "standardization.scale": "std_scale",
            **{f"{name}.weight": f"{name}.linear.weight" for name in _LINEARS},
        },
        layers="encoder.layers",
        prefixes=prefixes,
        channels_last=("patch_embedding.weight",),
    )
