"""Command R7B and Command A: Command R with windows; the layers without one have no positions.

Source: "Command A" (Cohere, 2025) and the model `cohere2` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.config.decoder_config import not_every_nth, windows_by_type
from hearthd.models.families import command_r
from hearthd.models.families.command_r import fields_from_gguf, fields_from_hugging_face

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_PERIOD = 4  # every fourth layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(command_r.Config):
    """The shape of a model."""

    @override
    def rotates(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        return bool(self.windows) and self.windows[layer] is not None


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(use_gated_activation=True, use_parallel_block=True, rotary_pct=1.0)
    data.fixed(order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj")
    data.ignore("use_embedding_sharing", "use_parallel_embedding")
    period = data.size("layer_switch", default=_PERIOD)
    period = data.size("sliding_window_pattern", default=period)
    fields = fields_from_hugging_face(data)
    return Config(**fields, windows=windows_by_type(data, not_every_nth(period, fields["layers"])))


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = fields_from_gguf(data)
    return Config(**fields, windows=data.windows_by_layer(fields["layers"], _PERIOD))


ARCHITECTURE = replace(
    command_r.ARCHITECTURE,
    name="cohere2",
    config=Config,
    model_types=("cohere2",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
)
