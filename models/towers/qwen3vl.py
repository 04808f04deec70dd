"""Qwen3-VL's tower: the patches of an image of any size to rows of embeddings.

Source: "Qwen3-VL Technical Report" (2025), and the models `qwen3_vl` and `qwen3_5` of transformers.
`N` is patches, `E` the hidden width of the tower, `M` the patches that give one row of embeddings:
the squares of 2 x 2 patches, which follow each other.

Qwen3-VL adds hidden states of inner layers of the tower to the results of the text model's first
layers ("DeepStack", Meng et al., 2024). Qwen3.5 has the tower without that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.program import StoredTensor
from hearthd.models.towers.siglip import CHANNELS, attended
from hearthd.models.towers.tower_config import TableConfig, axis_of, patch_count, square_side

if TYPE_CHECKING:
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.towers.tower_config import GridConfig

FRAMES = 2
_EPS = 1e-6
_ROPE_BASE = 10_000.0


@dataclass(frozen=True, kw_only=True)
class DeepStackConfig(TableConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    is_stacked  by layer, whether the hidden states after it are added to the result of a layer of
                the text model, from its first layer on
    """

    is_stacked: tuple[bool, ...]

    @property
    def stacked_layers(self) -> tuple[int, ...]:
        """The layers whose hidden states are added, from 0."""
        return tuple(layer for layer, stacked in enumerate(self.is_stacked) if stacked)


class Rotation:
    """Cosine and sine of an image's rotary positions, each f32 (N, D / 2).

    The first quarter of a head's columns turns by the row of a patch, the second by its column.
    """

    def __init__(self, places: Tensor, width: int) -> None:
        """Of places i32 (2, N), for heads of a width D."""
        tables = [f.rope_table(axis_of(places, i), width // 2, base=_ROPE_BASE) for i in (0, 1)]
        cosines, sines = zip(*tables, strict=True)
        self.cosine, self.sine = ops.concatenate(*cosines, axis=1), ops.concatenate(*sines, axis=1)

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate heads (N, H, D)."""
        return f.rope(x, self.cosine, self.sine)


class Attention(nn.Module):
    """Attention of every patch to every patch of the image."""

    def __init__(self, config: TableConfig) -> None:
        self.heads = config.tower_heads
        hidden = config.tower_hidden
        self.qkv = HeadLinear(hidden, 3 * self.heads, hidden // self.heads, bias=True)
        self.proj = nn.Linear(hidden, hidden, bias=True)

    def __call__(self, x: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's."""
        query, key, value = f.chunk(self.qkv(x), 3, axis=1)
        return self.proj(attended(rotation(query), rotation(key), value, count))


class Block(nn.Module):
    """One layer: attention and MLP, each normalized before."""

    def __init__(self, config: TableConfig) -> None:
        hidden = config.tower_hidden
        self.norm1 = nn.LayerNorm(hidden, _EPS)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(hidden, _EPS)
        self.fc1 = nn.Linear(hidden, config.tower_ffn, bias=True)
        self.fc2 = nn.Linear(config.tower_ffn, hidden, bias=True)

    def __call__(self, h: Tensor, rotation: Rotation, count: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        h = h + self.attn(self.norm1(h), rotation, count)
        return h + self.fc2(f.gelu_tanh(self.fc1(self.norm2(h))))


class Merger(nn.Module):
    """Joins the hidden states of squares of patches, and projects them to the text model."""

    def __init__(self, config: GridConfig, hidden: int) -> None:
        joined = config.tower_hidden * config.merged_patches**2
        self.fc1 = nn.Linear(joined, joined, bias=True)
        self.fc2 = nn.Linear(joined, hidden, bias=True)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of the tower (N, E) -> rows of embeddings (N / M, hidden)."""
        return self.fc2(f.gelu(self.fc1(self.joined(h))))

    def joined(self, h: Tensor) -> Tensor:
        """The hidden states of a square, side by side: (N / M, M * E)."""
        width = self.fc1.weight.shape[1]
        return ops.reshape(h, shape=(h.shape[0] * h.shape[1] // width, width))


class StackedMerger(Merger):
    """A merger that normalizes the hidden states of a square together."""

    def __init__(self, config: GridConfig, hidden: int) -> None:
        super().__init__(config, hidden)
        self.norm = nn.LayerNorm(config.tower_hidden * config.merged_patches**2, _EPS)

    @override
    def joined(self, h: Tensor) -> Tensor:
        return self.norm(super().joined(h))


class DeepStack(nn.Module):
    """A merger for each layer of the tower whose hidden states the text model adds."""

    def __init__(self, config: DeepStackConfig, hidden: int) -> None:
        self.layers = [StackedMerger(config, hidden) for _ in config.stacked_layers]


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: TableConfig) -> None:
        self.table_side = config.table_side
        self.head_width = config.tower_hidden // config.tower_heads
        pixels = CHANNELS * FRAMES * config.patch_size**2
        self.patch_embedding = nn.Linear(pixels, config.tower_hidden, bias=True)
        self.position_embedding = nn.Embedding(config.table_side**2, config.tower_hidden)
        self.layers = [Block(config) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.LayerNorm(config.tower_hidden, _EPS)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E).

        places  the row and the column of each patch, i32 (2, N)
        grid    rows and columns of patches, i32 (2,): the patches after these are padding
        """
        return self.post_layernorm(self.states(patches, places, grid)[-1])

    def states(self, patches: Tensor, places: Tensor, grid: Tensor) -> list[Tensor]:
        """The hidden states (N, E) after each layer."""
        states = [self.embed(patches, places, grid)]
        rotation = Rotation(places, self.head_width)
        count = patch_count(grid)
        for block in self.layers:
            states.append(block(states[-1], rotation, count))
        return states[1:]

    def embed(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """The hidden states that the first layer reads, (N, E)."""
        return self.patch_embedding(in_each_frame(patches)) + self._positions(places, grid)

    def _positions(self, places: Tensor, grid: Tensor) -> Tensor:
        """Embeddings (N, E), interpolated in the table, which is stretched over the image."""
        (top, bottom, down), (left, right, across) = (
            _neighbors(axis_of(places, i), f.narrow(grid, 0, i, i + 1), self.table_side)
            for i in (0, 1)
        )
        sides = ((top, 1.0 - down), (bottom, down)), ((left, 1.0 - across), (right, across))
        terms = []
        for row, row_weight in sides[0]:
            for column, column_weight in sides[1]:
                index = row * self.table_side + column
                found = ops.gather(self.position_embedding.weight, index, axis=0)
                terms.append(found * f.along_axes(row_weight * column_weight, found, (1,)))
        return terms[0] + terms[1] + terms[2] + terms[3]


def _neighbors(place: Tensor, count: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries of a table's axis before and after places i32 (N,), and the share of the second.

    `count` i32 (1,) places are spread over the `side` entries.
    """
    last = ops.maximum(count + -1, ops.full_like(count, 1))
    last = f.trailing(ops.convert(last, dtype=DType.F32), place.shape)
    at = ops.convert(place, dtype=DType.F32) * float(side - 1) / last
    before = ops.floor(at)
    index = ops.convert(before, dtype=DType.I32)
    index = ops.minimum(index, ops.full_like(index, side - 1))  # padding is anywhere
    return index, ops.minimum(index + 1, ops.full_like(index, side - 1)), at - before


def in_each_frame(patches: Tensor) -> Tensor:
    """Patches (N, channels * pixels), repeated as the frames of a still video."""
    count, width = patches.shape
    pixels = width // CHANNELS
    by_channel = ops.reshape(patches, shape=(count, CHANNELS, pixels))
    repeated = ops.broadcast(by_channel, shape=(count, CHANNELS, FRAMES, pixels), axes=(0, 1, 3))
    return ops.reshape(repeated, shape=(count, CHANNELS * FRAMES * pixels))


def tower_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `TableConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(
        hidden_act="gelu_pytorch_tanh", in_channels=CHANNELS, temporal_patch_size=FRAMES,
        out_hidden_size=hidden,
    )  # fmt: skip
    if data.has("rope_parameters"):
        data.section("rope_parameters").fixed(rope_type="axial", rope_theta=_ROPE_BASE)
    return {
        "patch_size": data.size("patch_size", default=16),
        "merged_patches": data.size("spatial_merge_size", default=2),
        "table_side": square_side(
            data.size("num_position_embeddings", default=2304), "num_position_embeddings"
        ),
        "tower_layers": data.size("depth", default=27),
        "tower_hidden": data.size("hidden_size", default=1152),
        "tower_ffn": data.size("intermediate_size", default=4304),
        "tower_heads": data.size("num_heads", default=16),
    }


def gguf_tower_fields(data: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `TableConfig`, from the keys of a projector's GGUF file; raises ConfigError."""
    patch = data.size("vision.patch_size")
    # The converter writes the text model's, which is equal in the published models.
    data.ignore("vision.attention.layer_norm_epsilon")
    return {
        "patch_size": patch,
        "merged_patches": data.size("vision.spatial_merge_size", default=2),
        "table_side": data.size("vision.image_size") // patch,
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": data.size("vision.feed_forward_length"),
        "tower_heads": data.size("vision.attention.head_count"),
    }


def tower_names(*prefixes: str) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a merger, in folders after one of the prefixes."""
    tower = TensorNames(
        gguf={
            "patch_embedding": "patch_embd",
            "position_embedding": "position_embd",
            "norm1": "ln1",
            "attn.qkv": "attn_qkv",
            "attn.proj": "attn_out",
            "norm2": "ln2",
            "fc1": "ffn_up",
            "fc2": "ffn_down",
            "post_layernorm": "post_ln",
        },
        gguf_prefix="v.",
        folder={
            "patch_embedding": "patch_embed.proj",
            "position_embedding": "pos_embed",
            "fc1": "mlp.linear_fc1",
            "fc2": "mlp.linear_fc2",
            "post_layernorm": "merger.norm",
        },
        layers="blocks",
        prefixes=prefixes,
    )
    merger = TensorNames(
        gguf={"fc1": "0", "fc2": "2"},
        gguf_prefix="mm.",
        folder={"fc1": "linear_fc1", "fc2": "linear_fc2"},
        prefixes=tuple(f"{prefix}merger." for prefix in prefixes),
    )
    return {"tower": tower, "merger": merger}


class DeepStackNames(TensorNames):
    """The names of the mergers of `DeepStack`: GGUF files number them by the tower's layers."""

    @override
    def find(
        self, config: ModelConfig, parameter: str, names: tuple[str, ...], *, gguf: bool
    ) -> StoredTensor:
        if not gguf:
            return super().find(config, parameter, names, gguf=False)
        assert isinstance(config, DeepStackConfig), "a tower without mergers of its layers"
        _, number, part = parameter.split(".", 2)
        return StoredTensor(f"{self.gguf_prefix}{config.stacked_layers[int(number)]}.{part}")


def deepstack_names(*prefixes: str) -> dict[str, TensorNames]:
    """As `tower_names`, with the names of `DeepStack`."""
    deepstack = DeepStackNames(
        gguf_prefix="v.deepstack.",
        folder={"fc1": "linear_fc1", "fc2": "linear_fc2"},
        layers="deepstack_merger_list",
        prefixes=prefixes,
    )
    return {**tower_names(*prefixes), "deepstack": deepstack}
