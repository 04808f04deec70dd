"""Phi-3 and Phi-4-mini: fused projections, partial rotation and LongRoPE.

Source: "Phi-3 Technical Report" (2024), "LongRoPE" (Ding et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json
from hearthd.models.decoder.config.long_rope import (
    LongRopeConfig,
    long_fields,
    long_fields_from_gguf,
    read_rope,
)
from hearthd.models.decoder.layers import Block, FusedAttention, FusedMLP
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields_from_gguf,
    turning_share,
)
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope


@dataclass(frozen=True, kw_only=True)
class Config(PartialRopeConfig, LongRopeConfig):
    """The shape of a model."""


class Phi3(PartialRopeModel):
    """Heads with rotary positions in some columns."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(
            config,
            [Block(config, FusedAttention(config), FusedMLP(config)) for _ in range(config.layers)],
        )


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = from_config_json(data, lambda *arguments: _rope(*arguments)[1])
    rotary_width, rope = _rope(data, fields["head_dim"], fields["max_context"])
    window = data.size("sliding_window", default=None)
    return Config(
        **fields,
        windows=(window,) * fields["layers"] if window else (),
        rotary_width=rotary_width,
        **long_fields(rope, fields["max_context"]),
    )


def _rope(data: ConfigJson, head_dim: int, max_context: int) -> tuple[int, Rope]:
    """The columns of a head that turn, and how."""
    width = int(head_dim * turning_share(data, usual=1.0))
    return width, read_rope(data, *data.rope_section(), width, max_context)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, and the tables of rotary divisors."""
    fields = partial_fields_from_gguf(data, usual=1.0)
    window = data.window()
    return Config(
        **fields | long_fields_from_gguf(data, fields["rotary_width"], fields["max_context"]),
        windows=(window,) * fields["layers"] if window else (),
    )


ARCHITECTURE = Architecture(
    name="phi3",
    config=Config,
    model_types=("phi3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Phi3,
    tensors=TensorNames(),
)
