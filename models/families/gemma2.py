"""Gemma 2: layers with norms before and after, sliding layers, and soft caps.

Source: "Gemma 2: Improving Open Language Models at a Practical Size" (2024) and the reference
implementation google/gemma_pytorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.architecture import Architecture
from models.decoder.config import (
    DecoderConfig,
    every_nth_layer_sees_all,
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from models.decoder.layers import MLP, Attention, DecoderModel
from models.decoder.tensor_names import GGUF_NAMES, TensorNames
from models.dsl import functions as f
from models.dsl import nn

if TYPE_CHECKING:
    from models.decoder.config_json import ConfigJson
    from models.decoder.gguf_metadata import GgufMetadata
    from models.decoder.layers import RopeTable
    from models.dsl.graph import Tensor
    from models.kv_cache import LayerCache

GEMMA_NAMES = TensorNames(
    gguf={
        **GGUF_NAMES,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    norm_offset=1.0,
)


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


class GemmaBlock(nn.Module):
    """One layer: attention and MLP, each normalised before and after."""

    def __init__(self, config: DecoderConfig, self_attn: Attention) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config, f.gelu_tanh)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        x = self.self_attn(x, rope, cache)
        h = h + self.post_attention_layernorm(x)
        x = self.pre_feedforward_layernorm(h)
        x = self.mlp(x)
        return h + self.post_feedforward_layernorm(x)


class GemmaModel(DecoderModel):
    """A model whose embeddings are scaled by the square root of their width."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return self.embed_tokens(tokens) * math.sqrt(self.config.hidden)


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


def gemma_keys(data: ConfigJson) -> None:
    """Read the keys that all Gemma models have, where they say what is computed here."""
    data.fixed(hidden_activation="gelu_pytorch_tanh", use_bidirectional_attention=False)
    data.assume(tie_word_embeddings=True, rms_norm_eps=1e-6)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    gemma_keys(data)
    fields = from_config_json(data)
    return Config(
        **fields,
        windows=windows_by_type(data, [layer % 2 == 0 for layer in range(fields["layers"])]),
        query_scale=data.number("query_pre_attn_scalar") ** -0.5,
        attention_cap=data.number("attn_logit_softcapping", default=None),
        logit_cap=data.number("final_logit_softcapping", default=None),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    layers, window = fields["layers"], data.size("attention.sliding_window")
    # The format does not say the scale. Only the 27B, known by its depth, has hidden / heads.
    width = fields["hidden"] / fields["heads"] if layers == _LAYERS_27B else fields["head_dim"]
    return Config(
        **fields,
        windows=every_nth_layer_sees_all(2, layers, window),
        query_scale=width**-0.5,
        attention_cap=data.number("attn_logit_softcapping", default=50.0),
        logit_cap=data.number("final_logit_softcapping", default=30.0),
    )


_LAYERS_27B = 46

ARCHITECTURE = Architecture(
    name="gemma2",
    config=Config,
    model_types=("gemma2",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma2,
    tensors=GEMMA_NAMES,
)
