"""Heads with rotary positions in their first columns only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, Block, DecoderModel, rope_table
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class PartialRopeConfig(DecoderConfig):
    """The shape of a model; `rotary_width` columns of a head turn."""

    rotary_width: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary_width % 2 or self.rotary_width > self.head_dim:
            raise ConfigError(
                f"partial_rotary_factor: expected at most {self.head_dim} columns, "
                f"an even number, got {self.rotary_width}"
            )


class PartialRopeModel(DecoderModel):
    """A model with such heads."""

    config: PartialRopeConfig

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,)."""
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


class LayerNormModel(PartialRopeModel):
    """Llama's blocks with LayerNorm."""

    def __init__(
        self,
        config: PartialRopeConfig,
        mlp: Callable[[PartialRopeConfig], Callable[[Tensor], Tensor]] = MLP,
    ) -> None:
        """`mlp` makes what follows the attention of a layer."""
        blocks = [
            Block(config, Attention(config), mlp(config), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)


def turning_share(data: ConfigJson, usual: float) -> float:
    """The share of a head's columns that turn; raises ConfigError for more than all."""
    section, _ = data.rope_section()
    share = data.number("partial_rotary_factor", default=usual)
    share = section.number("partial_rotary_factor", default=share)
    if share > 1:
        raise ConfigError(f"partial_rotary_factor: expected at most 1, got {share}")
    return share


def partial_fields(data: ConfigJson, usual: float, *, activation: str = "silu") -> dict[str, Any]:
    """The fields of `PartialRopeConfig`; `usual` is the share that turns where a file says none."""
    share = turning_share(data, usual)

    def rope(data: ConfigJson, head_dim: int, max_context: int) -> Rope:
        width = int(head_dim * share)
        return rope_scaling.read(*data.rope_section(), width, max_context)

    fields = from_config_json(data, rope, activation=activation)
    return {**fields, "rotary_width": int(fields["head_dim"] * share)}


def partial_fields_from_gguf(
    data: GgufMetadata, usual: float, *, heads: int | None = None
) -> dict[str, Any]:
    """As `partial_fields`, from GGUF metadata; for `heads` see `from_gguf_metadata`."""
    head_dim = data.size("attention.key_length", default=None)
    head_dim = head_dim or data.size("embedding_length") // data.size("attention.head_count")
    width = data.size("rope.dimension_count", default=int(head_dim * usual))
    fields = from_gguf_metadata(data, rope_width=width, heads=heads)
    return {**fields, "rotary_width": width}
