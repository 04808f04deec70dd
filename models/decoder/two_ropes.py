"""Heads with rotary positions of two kinds: layers with a window have a base of their own.

In both kinds of layers a part of each head may turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    SLIDING,
    from_config_json,
    local_rope_base,
)
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import DecoderModel, rope_table
from hearthd.models.decoder.partial_rope import PartialRopeConfig, partial_fields_from_gguf

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_SHARE = "partial_rotary_factor"


@dataclass(frozen=True, kw_only=True)
class TwoRopesConfig(PartialRopeConfig):
    """The shape of a model.

    local_rope_base     base of the rotary positions of layers with a window, which are not scaled
    local_rotary_width  the columns of a head that turn in those layers
    """

    local_rope_base: float
    local_rotary_width: int

    @property
    @override
    def local(self) -> TwoRopesConfig:
        """The shape of the layers with a window."""
        return replace(
            self, rotary_width=self.local_rotary_width, **Rope(base=self.local_rope_base).fields
        )


class TwoRopesModel(DecoderModel):
    """A model with such heads."""

    config: TwoRopesConfig

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,)."""
        everywhere, local = (
            rope_table(shape, positions, shape.rotary_width)
            for shape in (self.config, self.config.local)
        )
        layers = range(self.config.layers)
        return [everywhere if self.window(layer) is None else local for layer in layers]


def two_ropes_fields(data: ConfigJson, *, activation: str = "silu") -> dict[str, Any]:
    """The fields of `TwoRopesConfig` but `windows`; for `activation` see `from_config_json`."""
    section, base = data.rope_section(FULL)
    share = section.number(_SHARE, default=1.0)

    def rope(_: ConfigJson, head_dim: int, max_context: int) -> Rope:
        return rope_scaling.read(section, base, int(head_dim * share), max_context)

    fields = from_config_json(data, rope, activation=activation)
    local_share = data.rope_section(SLIDING)[0].number(_SHARE, default=1.0)
    local_width = int(fields["head_dim"] * local_share)
    return {
        **fields,
        "rotary_width": int(fields["head_dim"] * share),
        "local_rope_base": local_rope_base(data, local_width, fields["max_context"]),
        "local_rotary_width": local_width,
    }


def two_ropes_from_gguf(data: GgufMetadata, *, heads: int | None = None) -> dict[str, Any]:
    """As `two_ropes_fields`, from GGUF metadata; for `heads` see `from_gguf_metadata`."""
    fields = partial_fields_from_gguf(data, 1.0, heads=heads)
    return {
        **fields,
        "local_rope_base": data.number("rope.freq_base_swa", default=fields["rope_base"]),
        "local_rotary_width": data.size("rope.dimension_count_swa", default=fields["rotary_width"]),
    }
