"""Phi-3 and Phi-4-mini: fused projections, partial rotation and LongRoPE.

Source: "Phi-3 Technical Report" (2024), "LongRoPE" (Ding et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.config.gguf_metadata import LONG_DIVISORS, SHORT_DIVISORS
from hearthd.models.decoder.layers import (
    Block,
    DecoderModel,
    FusedAttention,
    FusedMLP,
    rope_table,
)
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_LONG_KINDS = ("longrope", "su", "yarn")  # the older names mean the same in this architecture


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    rotary_width      columns of a head that turn
    long_divisors     `rope_divisors` for contexts beyond the original one; empty: the same
    original_context  in tokens
    """

    rotary_width: int
    long_divisors: tuple[float, ...]
    original_context: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary_width % 2 or self.rotary_width > self.head_dim:
            raise ConfigError(
                f"partial_rotary_factor: expected at most {self.head_dim} columns, "
                f"an even number, got {self.rotary_width}"
            )

    @property
    @override
    def auto_context(self) -> int:
        longest = super().auto_context
        return min(longest, self.original_context) if self.long_divisors else longest

    @override
    def for_context(self, context: int) -> Self:
        """Choose the rotary divisors for slots of a number of positions."""
        if context <= self.original_context or not self.long_divisors:
            return self
        return replace(self, rope_divisors=self.long_divisors)


class Phi3(DecoderModel):
    """Heads of which some columns turn."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(
            config,
            [Block(config, FusedAttention(config), FusedMLP(config)) for _ in range(config.layers)],
        )

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,)."""
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = from_config_json(data, lambda *arguments: _rope(*arguments)[1])
    rotary_width, rope = _rope(data, fields["head_dim"], fields["max_context"])
    window = data.size("sliding_window", default=None)
    return Config(
        **fields,
        windows=(window,) * fields["layers"] if window else (),
        rotary_width=rotary_width,
        long_divisors=rope.long_divisors,
        original_context=rope.original_context or fields["max_context"],
    )


def _rope(data: ConfigJson, head_dim: int, max_context: int) -> tuple[int, Rope]:
    """The columns of a head that turn, and how."""
    section, base = data.rope_section()
    share = data.number("partial_rotary_factor", default=1.0)
    share = section.number("partial_rotary_factor", default=share)
    if share > 1:
        raise ConfigError(f"partial_rotary_factor: expected at most 1, got {share}")
    width = int(head_dim * share)
    original = data.size("original_max_position_embeddings", default=max_context)
    original = section.size("original_max_position_embeddings", default=original)
    if section.text("rope_type", default=section.text("type", default="")) in _LONG_KINDS:
        return width, rope_scaling.longrope(section, base, width, max_context, original)
    return width, rope_scaling.read(section, base, width, max_context)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, and the tables of rotary divisors."""
    head_dim = data.size("attention.key_length", default=None)
    head_dim = head_dim or data.size("embedding_length") // data.size("attention.head_count")
    width = data.size("rope.dimension_count", default=head_dim)
    fields = from_gguf_metadata(data, rope_width=width)
    window = data.window()
    original = data.size("rope.scaling.original_context_length", default=fields["max_context"])
    long: tuple[float, ...] = ()
    if data.has_tensor(LONG_DIVISORS):
        long = data.divisors(LONG_DIVISORS, width)
        fields["rope_divisors"] = data.divisors(SHORT_DIVISORS, width)
    return Config(
        **fields,
        windows=(window,) * fields["layers"] if window else (),
        rotary_width=width,
        long_divisors=long,
        original_context=original,
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
