"""EXAONE 4: OLMo 2 with normalized heads; with a window, other layers have no positions.

Source: "EXAONE 4.0" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.layers import DecoderModel, NormedAttention
from hearthd.models.decoder.tensor_names import GGUF_NAMES_WITH_NORMS_AFTER, TensorNames
from hearthd.models.families.olmo2 import Olmo2Block

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

PERIOD = 4  # every fourth layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model: without `windows`, every layer has rotary positions."""

    @override
    def rotates(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        return not self.windows or self.windows[layer] is not None


class Exaone4(DecoderModel):
    """Blocks with norms after, and normalized heads."""

    def __init__(self, config: Config) -> None:
        attention = (NormedAttention(config) for _ in range(config.layers))
        super().__init__(config, [Olmo2Block(config, layer) for layer in attention])


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = from_config_json(data)
    return Config(**fields, windows=windows_from_config_json(data, fields["layers"]))


def windows_from_config_json(data: ConfigJson, layers: int) -> tuple[int | None, ...]:
    """`windows` from config.json, also where no layer has one; raises ConfigError."""
    window, period = data.size("sliding_window", default=None), 1
    if data.has("layer_types"):
        data.ignore("sliding_window_pattern")
    elif window:
        period = data.size("sliding_window_pattern", default=PERIOD)
    windows = windows_by_type(data, not_every_nth(period, layers))
    return windows or ((None,) * layers if window else ())


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    return Config(**fields, windows=data.windows_by_layer(fields["layers"], PERIOD))


ARCHITECTURE = Architecture(
    name="exaone4",
    config=Config,
    model_types=("exaone4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Exaone4,
    tensors=TensorNames(gguf=GGUF_NAMES_WITH_NORMS_AFTER),
)
