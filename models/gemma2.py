"""Gemma 2: Gemma 3 with soft caps, without normalised heads, and with one kind of positions.

Source: "Gemma 2: Improving Open Language Models at a Practical Size" (2024) and the reference
implementation google/gemma_pytorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.decoder.architecture import Architecture
from models.decoder.decoder_config import (
    DecoderConfig,
    all_but_every_nth,
    every_nth_layer_sees_all,
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from models.decoder.layers import Attention
from models.dsl import functions as f
from models.gemma3 import GEMMA_NAMES, GemmaBlock, GemmaModel, gemma_keys, gguf_query_scale

if TYPE_CHECKING:
    from models.decoder.config_json import ConfigJson
    from models.decoder.gguf_metadata import GgufMetadata
    from models.dsl.graph import Tensor

_PERIOD = 2  # every second layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    query_scale    factor of q k^T
    attention_cap  a score s becomes cap * tanh(s / cap)
    logit_cap      a logit l becomes cap * tanh(l / cap)
    """

    query_scale: float
    attention_cap: float | None
    logit_cap: float | None


class Gemma2(GemmaModel):
    """Attention and logits with soft caps."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            GemmaBlock(
                config, Attention(config, scale=config.query_scale, cap=config.attention_cap)
            )
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)

    def logits(self, x: Tensor) -> Tensor:
        """Normalised hidden states (N, E) -> logits (N, V)."""
        logits, cap = super().logits(x), self.config.logit_cap
        return logits if cap is None else f.soft_cap(logits, cap)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    gemma_keys(data)
    fields = from_config_json(data)
    return Config(
        **fields,
        windows=windows_by_type(data, all_but_every_nth(_PERIOD, fields["layers"])),
        query_scale=data.number("query_pre_attn_scalar") ** -0.5,
        attention_cap=data.number("attn_logit_softcapping", default=None),
        logit_cap=data.number("final_logit_softcapping", default=None),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    window = data.size("attention.sliding_window")
    return Config(
        **fields,
        windows=every_nth_layer_sees_all(_PERIOD, fields["layers"], window),
        query_scale=gguf_query_scale(fields, layers_27b=46),
        attention_cap=data.number("attn_logit_softcapping", default=50.0),
        logit_cap=data.number("final_logit_softcapping", default=30.0),
    )


ARCHITECTURE = Architecture(
    name="gemma2",
    config=Config,
    model_types=("gemma2",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma2,
    tensors=GEMMA_NAMES,
)
