"""EuroBERT: Llama's layers whose tokens see both directions.

Source: "EuroBERT: Scaling Multilingual Encoders for European Languages" (Boizard et al., 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; the head of its pretraining is not read."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    tied: bool = True


class EuroBert(Llama):
    """The encoder."""

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E)."""
        layers = [texts.layer() for _ in self.layers]
        h = self(texts.tokens, texts.positions, layers)
        return texts.pooled(h, self.config.pooling)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, of a model that embeds."""
    fields = from_config_json(data) | {"tied": True, "pooling": data.encoder_pooling()}
    data.ignore(
        "bos_token", "classifier_pooling", "clf_pooling", "eos_token", "hidden_dropout",
        "mask_token", "mask_token_id", "pad_token",
    )  # fmt: skip
    if fields["pooling"] == "rank":
        raise ConfigError("config.json: architectures: supported are models without a head")
    return Config(**fields)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.require_both_directions()
    return Config(**from_gguf_metadata(data))


ARCHITECTURE = EncoderArchitecture(
    name="eurobert",
    config=Config,
    model_types=("eurobert",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=EuroBert,
    tensors=TensorNames(),
)
