"""Gemma 2: Gemma 3 with soft caps, without normalized heads, and with one kind of positions.

Source: "Gemma 2: Improving Open Language Models at a Practical Size" (2024) and the reference
implementation google/gemma_pytorch.
"""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.config.gemma_config import config_fields, gguf_fields, soft_caps
from hearthd.models.decoder.layers import Attention
from hearthd.models.families.gemma3 import GEMMA_NAMES, GemmaBlock, GemmaModel


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model: `query_scale` is the factor of q k^T.

    A score s becomes `attention_cap` * tanh(s / `attention_cap`); a logit so with `logit_cap`.
    """

    query_scale: float
    attention_cap: float | None
    logit_cap: float | None


class Gemma2(GemmaModel):
    """Attention and logits with soft caps."""

    def __init__(self, config: Config) -> None:
        scale, cap = config.query_scale, config.attention_cap
        attention = (Attention(config, scale=scale, cap=cap) for _ in range(config.layers))
        blocks = [GemmaBlock(config, layer) for layer in attention]
        super().__init__(config, blocks, logit_cap=config.logit_cap)


ARCHITECTURE = Architecture(
    name="gemma2",
    config=Config,
    model_types=("gemma2",),
    read_config_json=lambda data: Config(**config_fields(data, period=2), **soft_caps(data)),
    read_gguf=lambda data: Config(
        **gguf_fields(data, period=2, layers_27b=46, window=4096),
        **soft_caps(data, attention=50.0, logit=30.0),
    ),
    model=Gemma2,
    tensors=GEMMA_NAMES,
)
