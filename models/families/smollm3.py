"""SmolLM3: Llama in which every fourth layer has no rotary positions (NoPE; Kazemnejad, 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config import decoder_config
from hearthd.models.decoder.config.decoder_config import DecoderConfig, not_every_nth
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families.llama import Llama
from hearthd.models.families.qwen2 import qwen_fields

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_PERIOD = 4


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `rotated` says for each layer whether it has rotary positions."""

    by_layer = (*DecoderConfig.by_layer, "rotated")

    rotated: tuple[bool, ...]

    @override
    def rotates(self, layer: int) -> bool:
        """Whether a layer has rotary positions."""
        return self.rotated[layer]


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, in which a 1 in `no_rope_layers` means rotary positions."""
    data.assume(rope_theta=2_000_000.0, tie_word_embeddings=True)
    period = data.size("no_rope_layer_interval", default=_PERIOD)
    fields = qwen_fields(data)
    usual = not_every_nth(period, fields["layers"])
    rotated = data.counts("no_rope_layers", default=[int(rotated) for rotated in usual])
    return Config(**fields, rotated=tuple(map(bool, rotated)))


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, which do not say the layers."""
    fields = decoder_config.from_gguf_metadata(data)
    return Config(**fields, rotated=tuple(not_every_nth(_PERIOD, fields["layers"])))


ARCHITECTURE = Architecture(
    name="smollm3",
    config=Config,
    model_types=("smollm3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Llama,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
