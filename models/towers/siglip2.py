"""SigLIP 2's tower, as LFM2-VL has it: the patches of an image of any size to hidden states.

Source: "SigLIP 2: Multilingual Vision-Language Encoders with Improved Semantic Understanding,
Localization, and Dense Features" (Tschannen et al., 2025), the sizes of NaFlex, and the model
`siglip2_vision_model` of transformers. `N` is patches, `E` the hidden width of the tower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers import siglip
from hearthd.models.towers.siglip import CHANNELS
from hearthd.models.towers.tower_config import (
    TableConfig,
    axis_of,
    mixed_positions,
    patch_count,
    square_side,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.decoder.tensor_names import TensorNames
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class TowerConfig(TableConfig):
    """The shape of a tower, as fields of the configuration of a model that has one."""

    tower_norm_eps: float


class Tower(nn.Module):
    """The whole tower."""

    antialiased = (
        True  # whether positions of images smaller than the table are means of its entries
    )

    def __init__(self, config: TowerConfig) -> None:
        self.table_side = config.table_side
        hidden, eps = config.tower_hidden, config.tower_norm_eps
        self.patch_embedding = nn.Linear(CHANNELS * config.patch_size**2, hidden, bias=True)
        self.position_embedding = nn.Embedding(config.table_side**2, hidden)
        self.layers = [siglip.Block(config, eps) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.LayerNorm(hidden, eps)

    def __call__(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Patches f32 (N, channels * pixels) of an image -> (N, E): see `qwen3vl.Tower`."""
        h, count = self.embed(patches, places, grid), patch_count(grid)
        for block in self.layers:
            h = block(h, count)
        return self.post_layernorm(h)

    def embed(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """The hidden states that the first layer reads, (N, E)."""
        return self.patch_embedding(patches) + self._positions(places, grid)

    def _positions(self, places: Tensor, grid: Tensor) -> Tensor:
        """The table resized to the image (bilinear): (N, E)."""
        down, across = (
            self._weights(axis_of(places, i), f.narrow(grid, 0, i, i + 1)) for i in (0, 1)
        )
        return mixed_positions(self.position_embedding.weight, down, across)

    def _weights(self, place: Tensor, count: Tensor) -> Tensor:
        """The weights of the entries of the table's axis at places i32 (N,): f32 (N, side).

        `count` i32 (1,) places are spread over the axis. The weights fall linearly with the
        distance, to 0 at one entry, or at one place if that is longer and weights are antialiased.
        """
        side = self.table_side
        count = ops.convert(count, dtype=DType.F32)
        scale = ops.full_like(count, float(side)) / count
        center = ops.convert(place, dtype=DType.F32) + 0.5
        center = center * f.trailing(scale, place.shape) + -0.5
        entry = ops.iota(shape=(place.shape[0], side), axis=1, dtype=DType.I32)
        entry = ops.convert(entry, dtype=DType.F32)
        distance = ops.absolute(entry - f.along_axes(center, entry, (1,)))
        if self.antialiased:
            support = f.trailing(ops.maximum(scale, ops.full_like(scale, 1.0)), entry.shape)
            distance = distance / support
        near = f.relu(1.0 - distance)
        return near / f.along_axes(ops.reduce_sum(near, axes=(1,)), near, (1,))


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig` but one, from the object of config.json; raises ConfigError."""
    data.fixed(
        hidden_act="gelu_pytorch_tanh", num_channels=CHANNELS, model_type="siglip2_vision_model"
    )
    data.ignore("attention_dropout", "vision_use_head")  # the head is of the whole image
    return {
        "patch_size": data.size("patch_size", default=16),
        "table_side": square_side(data.size("num_patches", default=256), "num_patches"),
        "tower_layers": data.size("num_hidden_layers", default=12),
        "tower_hidden": data.size("hidden_size", default=768),
        "tower_ffn": data.size("intermediate_size", default=3072),
        "tower_heads": data.size("num_attention_heads", default=12),
        "tower_norm_eps": data.number("layer_norm_eps", default=1e-6),
    }


def gguf_tower_fields(data: ProjectorMetadata, positions: int) -> dict[str, Any]:
    """The fields of `TowerConfig` but one, from a projector's keys and the rows of its table.

    Raises ConfigError.
    """
    fields = siglip.gguf_tower_fields(data)
    del fields["image_size"]  # the converter writes 256, whatever the table has
    return {**fields, "table_side": square_side(positions, "v.position_embd.weight")}


def tower_names(*prefixes: str) -> TensorNames:
    """The names of a tower's tensors, in folders after one of the prefixes."""
    return replace(siglip.tower_names(*prefixes), channels_last=("patch_embedding.weight",))
