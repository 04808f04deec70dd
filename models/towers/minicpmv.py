"""MiniCPM-V's tower: the patches of a part of an image to a fixed number of rows of embeddings.

Source: "MiniCPM-V: A GPT-4V Level MLLM on Your Phone" (Yao et al., 2024), and modeling_minicpmv.py
and resampler.py of openbmb/MiniCPM-V-2_6. `N` is patches, `E` the hidden width of the tower, `Q`
the rows of embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError, ImageGrid
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers import siglip
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import LayersConfig, axis_of, patch_count, square_side

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

TABLE_SIDE = 70  # of the published models: images of 980 pixels with patches of 14
_HEAD_WIDTH = 128  # of the resampler
_RESAMPLER_EPS = 1e-6
_POSITION_BASE = 1e4
# Sides are rounded to patches, so that a part of an image with the area of a square has more
# patches than the square: enough for a side that is 70 times as long as the other one.
_MORE_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class TowerConfig(LayersConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    image_size  pixels of a side of the square that a part of an image has the area of
    patch_size  pixels of a side of a patch
    table_side  positions in a row and in a column
    queries     rows of embeddings of a part of an image
    """

    image_size: int
    patch_size: int
    table_side: int
    tower_norm_eps: float
    queries: int

    def require_tower(self, hidden: int) -> None:
        """Raise ConfigError unless heads share both widths in equal parts."""
        self.require_layers()
        if hidden % _HEAD_WIDTH:
            raise ConfigError(f"hidden_size: got {hidden}, expected a multiple of {_HEAD_WIDTH}")
        if self.image_size < self.patch_size:
            raise ConfigError(
                f"image_size: got {self.image_size}, expected at least {self.patch_size}"
            )

    @property
    def max_patches(self) -> int:
        """The most patches of a part of an image."""
        side = self.image_size // self.patch_size
        return side * (side + _MORE_ROWS)

    @property
    def parts(self) -> ImageGrid:
        """Parts of images, of any shape."""
        return ImageGrid(self.patch_size, 1, self.max_patches)


class Tower(nn.Module):
    """SigLIP's tower, with positions by the fraction of the image that precedes a patch."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, eps = config.tower_hidden, config.tower_norm_eps
        self.table_side = config.table_side
        self.patch_embedding = nn.Linear(CHANNELS * config.patch_size**2, hidden, bias=True)
        self.position_embedding = nn.Embedding(config.table_side**2, hidden)
        self.layers = [siglip.Block(config, eps) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.LayerNorm(hidden, eps)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        row, column = (
            _entries(axis_of(places, i), f.narrow(grid, 0, i, i + 1), self.table_side)
            for i in (0, 1)
        )
        table = self.position_embedding.weight
        positions = ops.gather(table, row * self.table_side + column, axis=0)
        h = self.patch_embedding(patches) + positions
        count = patch_count(grid)
        for block in self.layers:
            h = block(h, count)
        return self.post_layernorm(h)


def _entries(place: Tensor, count: Tensor, side: int) -> Tensor:
    """The entries of a table's axis at places i32 (N,) of `count` i32 (1,): rounded down."""
    place, count = (ops.convert(x, dtype=DType.F32) for x in (place, count))
    share = ops.floor(place * float(side) / f.trailing(count, place.shape))
    entry = ops.convert(share, dtype=DType.I32)
    return ops.minimum(entry, ops.full_like(entry, side - 1))  # padding is anywhere


class QueryAttention(nn.Module):
    """Attention of the queries to all patches."""

    def __init__(self, hidden: int) -> None:
        heads = hidden // _HEAD_WIDTH
        self.q_proj = HeadLinear(hidden, heads, _HEAD_WIDTH, bias=True)
        self.k_proj = HeadLinear(hidden, heads, _HEAD_WIDTH, bias=True)
        self.v_proj = HeadLinear(hidden, heads, _HEAD_WIDTH, bias=True)
        self.out_proj = nn.Linear(hidden, hidden, bias=True)

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, count: Tensor) -> Tensor:
        """Query (Q, hidden), keys and values (N, hidden), of `count` i32 (1,): (Q, hidden)."""
        heads = self.q_proj(query), self.k_proj(keys), self.v_proj(values)
        return self.out_proj(attended(*heads, count))


class Resampler(nn.Module):
    """Learned queries that attend to the hidden states of all patches."""

    def __init__(self, config: TowerConfig, hidden: int) -> None:
        self.query = nn.Embedding(config.queries, hidden)
        self.kv_proj = nn.Linear(config.tower_hidden, hidden)
        self.ln_q = nn.LayerNorm(hidden, _RESAMPLER_EPS)
        self.ln_kv = nn.LayerNorm(hidden, _RESAMPLER_EPS)
        self.attn = QueryAttention(hidden)
        self.ln_post = nn.LayerNorm(hidden, _RESAMPLER_EPS)
        self.proj = nn.Linear(hidden, hidden)

    def __call__(self, h: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Hidden states of the tower (N, E) -> rows of embeddings (Q, hidden)."""
        values = self.ln_kv(self.kv_proj(h))
        keys = values + _waves(places, values.shape[1])
        query = self.ln_q(self.query.weight)
        return self.proj(self.ln_post(self.attn(query, keys, values, patch_count(grid))))


def _waves(places: Tensor, width: int) -> Tensor:
    """Sines and cosines of the column and of the row of places i32 (2, N): f32 (N, width)."""
    parts = []
    for axis in (1, 0):
        cosine, sine = f.rope_table(axis_of(places, axis), width // 2, base=_POSITION_BASE)
        parts += [sine, cosine]
    return ops.concatenate(*parts, axis=1)


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from config.json; raises ConfigError."""
    vision = data.section("vision_config")
    data.fixed(drop_vision_last_layer=False, init_vision=True, slice_mode=True)
    data.ignore("batch_3d_resampler", "batch_vision_input", "vision_batch_size", "use_image_id")
    patch = vision.size("patch_size", default=14)
    data.fixed(patch_size=patch)
    vision.fixed(hidden_act="gelu_pytorch_tanh", num_channels=CHANNELS)
    vision.ignore("attention_dropout", "model_type")
    return {
        "image_size": data.size("image_size", default=448),
        "patch_size": patch,
        "table_side": vision.size("image_size", default=TABLE_SIDE * patch) // patch,
        "tower_layers": vision.size("num_hidden_layers", default=27),
        "tower_hidden": vision.size("hidden_size", default=1152),
        "tower_ffn": vision.size("intermediate_size", default=4304),
        "tower_heads": vision.size("num_attention_heads", default=16),
        "tower_norm_eps": vision.number("layer_norm_eps", default=1e-6),
        "queries": data.size("query_num", default=64),
    }


def gguf_tower_fields(data: ProjectorMetadata, positions: int, queries: int) -> dict[str, Any]:
    """The fields of `TowerConfig`, from a projector's keys and the rows of two of its tensors.

    Raises ConfigError.
    """
    data.ignore("has_minicpmv_projector", "minicpmv_query_num")
    return {
        **siglip.gguf_tower_fields(data),
        "table_side": square_side(positions, "v.position_embd.weight"),
        "queries": queries,
    }


def tower_names() -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a resampler."""
    resampler = TensorNames(
        gguf={
            "query.weight": "query",
            "kv_proj": "kv",
            **{f"attn.{part}_proj": f"attn.{part}" for part in ("q", "k", "v", "out")},
            **{name: name for name in ("ln_q", "ln_kv", "ln_post", "proj")},
        },
        gguf_prefix="resampler.",
        folder={
            "query.weight": "query",
            "attn.in_proj.weight": "attn.in_proj_weight",
            "attn.in_proj.bias": "attn.in_proj_bias",
        },
        joined={"in_proj": ("q_proj", "k_proj", "v_proj")},
        transposed=("proj",),
        prefixes=("resampler.",),
    )
    return {"tower": siglip.tower_names("vpm."), "resampler": resampler}
