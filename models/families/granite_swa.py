"""Granite Swash: Granite with windows in most layers, and heads with sinks.

Source: the model `granite_swa` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import windows_by_type
from hearthd.models.decoder.layers import rope_table
from hearthd.models.decoder.tensor_names import GGUF_NAMES
from hearthd.models.families import granite
from hearthd.models.families.gpt_oss import SinkAttention
from hearthd.models.families.granite import Granite, GraniteBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # the first of this many layers sees the whole context
_WINDOW = 128


@dataclass(frozen=True, kw_only=True)
class Config(granite.Config):
    """The shape of a model.

    rope_bases  of the rotary positions of each layer; None: it has none
    """

    by_layer = (*granite.Config.by_layer, "rope_bases")

    rope_bases: tuple[float | None, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_divisors and not {*self.rope_bases} <= {None, self.rope_base}:
            raise ConfigError("layer_rope_theta: bases that differ are supported without a scaling")

    @override
    def rotates(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        return self.rope_bases[layer] is not None


class GraniteSwa(Granite):
    """Granite's blocks with sinks, and with rotary positions by layer."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config, [self.block(config) for _ in range(config.layers)])

    def block(self, config: Config) -> GraniteBlock:
        """One layer."""
        return GraniteBlock(config, mixer=sink_attention(config))

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,), or None for no rotation."""
        config = self.config
        tables = {
            base: rope_table(replace(config, rope_base=base), positions)
            for base in dict.fromkeys(config.rope_bases)
            if base is not None
        }
        return [None if base is None else tables[base] for base in config.rope_bases]


def sink_attention(config: granite.Config) -> SinkAttention:
    """Granite's attention with a sink for each head."""
    return SinkAttention(config, scale=config.attention_scale)


def with_windows(data: ConfigJson, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of Granite, and windows and positions by layer; raises ConfigError."""
    layers, base = fields["layers"], fields["rope_base"]
    slides = [layer % _PERIOD != 0 for layer in range(layers)]
    rotates = data.counts("no_rope_layers", default=[1] * layers)  # of older files
    bases = data.factors("layer_rope_theta", default=[base * turns for turns in rotates])
    data.assume(sliding_window=_WINDOW)
    return {
        **fields,
        "windows": windows_by_type(data, slides),
        "rope_bases": tuple(base or None for base in bases),
    }


def with_windows_of_gguf(data: GgufMetadata, fields: dict[str, Any]) -> dict[str, Any]:
    """The same from GGUF metadata, which have one base."""
    layers, base = fields["layers"], fields["rope_base"]
    rotates = data.flags_by_layer("attention.rope_pattern", [True] * layers)
    return {
        **fields,
        "windows": data.windows_by_layer(layers),
        "rope_bases": tuple(base if turns else None for turns in rotates),
    }


_NAMES = {**GGUF_NAMES, "self_attn.sinks": "attn_sinks.weight"}
ARCHITECTURE = Architecture(
    name="granite_swa",
    config=Config,
    model_types=("granite_swa",),
    read_config_json=lambda data: Config(
        **with_windows(data, granite.fields_from_hugging_face(data))
    ),
    read_gguf=lambda data: Config(
        **with_windows_of_gguf(data, granite.without_experts(data, granite.fields_from_gguf(data)))
    ),
    model=GraniteSwa,
    tensors=replace(granite.ARCHITECTURE.tensors, gguf=_NAMES),
)
