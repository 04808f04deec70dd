"""LongRoPE (Ding et al., 2024): rotary divisors for the original context, and others beyond it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.config.gguf_metadata import LONG_DIVISORS, SHORT_DIVISORS

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope

_LONG_KINDS = ("longrope", "su", "yarn")  # the older names mean the same in these architectures


@dataclass(frozen=True, kw_only=True)
class LongRopeConfig(DecoderConfig):
    """The shape of a decoder.

    long_divisors     `rope_divisors` for contexts beyond the original one; empty: the same
    original_context  in tokens
    """

    long_divisors: tuple[float, ...] = ()
    original_context: int

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


def read_rope(
    data: ConfigJson, section: ConfigJson, base: float, width: int, max_context: int
) -> Rope:
    """The rotary positions of `width` columns, in a section of config.json; raises ConfigError."""
    original = data.size("original_max_position_embeddings", default=max_context)
    original = section.size("original_max_position_embeddings", default=original)
    if section.text("rope_type", default=section.text("type", default="")) in _LONG_KINDS:
        return rope_scaling.longrope(section, base, width, max_context, original)
    return rope_scaling.read(section, base, width, max_context)


def long_fields(rope: Rope, max_context: int) -> dict[str, Any]:
    """The fields that `LongRopeConfig` adds, of the rotary positions in config.json."""
    original = rope.original_context or max_context
    return {"long_divisors": rope.long_divisors, "original_context": original}


def long_fields_from_gguf(data: GgufMetadata, width: int, max_context: int) -> dict[str, Any]:
    """The fields that `LongRopeConfig` adds, and its divisors; raises ConfigError."""
    original = data.size("rope.scaling.original_context_length", default=max_context)
    if not data.has_tensor(LONG_DIVISORS):
        return {"original_context": original}
    return {
        "original_context": original,
        "long_divisors": data.divisors(LONG_DIVISORS, width),
        "rope_divisors": data.divisors(SHORT_DIVISORS, width),
    }
