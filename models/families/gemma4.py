"""Gemma 4 (text): Gemma 3 with an embedding for each layer, and layers that share keys and values.

The larger models have neither: the keys of their layers without a window are also their values.

Source: the models `gemma4`, `gemma4_text` and `gemma4_unified` of transformers (2026).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    from_hugging_face,
)
from hearthd.models.decoder.layers import HeadLinear, NormedAttention, Scale, normalized
from hearthd.models.decoder.shared_cache import SharedAttention
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.families import gemma3
from hearthd.models.families.gemma3 import GemmaBlock, GemmaModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer
    from hearthd.models.dsl.graph import Tensor


class Gemma4Attention(NormedAttention):
    """Attention whose values are normalized too."""

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        query, key, value = super().heads(x)
        return query, key, normalized(value, self.k_norm.eps)


class OneProjectionAttention(NormedAttention):
    """Attention whose keys and values are one projection, normalized with weights and without."""

    def __init__(self, config: DecoderConfig, *, scale: float) -> None:
        width = config.head_dim
        self.scale, self.cap = scale, None
        self.q_proj = HeadLinear(config.hidden, config.heads, width)
        self.k_proj = HeadLinear(config.hidden, config.kv_heads, width)
        self.o_proj = nn.Linear(config.heads * width, config.hidden)
        self.q_norm = nn.RMSNorm(width, config.norm_eps)
        self.k_norm = nn.RMSNorm(width, config.norm_eps)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        key = self.k_proj(x)
        return self.q_norm(self.q_proj(x)), self.k_norm(key), normalized(key, self.k_norm.eps)


def attention(config: Gemma4Config, index: int) -> Layer:
    """The attention of a layer."""
    shape = config.layer(index)
    if config.shares(index):
        return SharedAttention(shape, scale=1.0)
    kind = Gemma4Attention if config.has_values(index) else OneProjectionAttention
    return kind(shape, scale=1.0)


class Gemma4Block(GemmaBlock):
    """A layer of Gemma 3, then one number that multiplies its result."""

    def __init__(self, config: Gemma4Config, index: int) -> None:
        super().__init__(config.layer(index), attention(config, index))
        self.layer_scalar = Scale()


class EmbeddingBlock(GemmaBlock):
    """Before the number, the token's embedding for this layer is added, through a gate."""

    def __init__(self, config: Gemma4Config, index: int, width: int) -> None:
        super().__init__(config.layer(index), attention(config, index))
        self.per_layer_input_gate = nn.Linear(config.hidden, width)
        self.per_layer_projection = nn.Linear(width, config.hidden)
        self.post_per_layer_input_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.layer_scalar = Scale()

    def finish(self, h: Tensor, embedding: Tensor) -> Tensor:
        """(N, E) and the embeddings for this layer (N, P) -> (N, E)."""
        x = f.gelu_tanh(self.per_layer_input_gate(h)) * embedding
        h = h + self.post_per_layer_input_norm(self.per_layer_projection(x))
        return self.layer_scalar(h)


class Gemma4(GemmaModel):
    """Layers of two shapes."""

    config: Gemma4Config
    layers: Sequence[Gemma4Block]

    def __init__(self, config: Gemma4Config, blocks: Sequence[Gemma4Block] | None = None) -> None:
        plain = (Gemma4Block(config, index) for index in range(config.layers))
        super().__init__(config, blocks or list(plain), logit_cap=config.logit_cap)

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h = self.embed(tokens) if h is None else h
        ropes = self.rope_tables(positions)
        for i, block in enumerate(self.layers):
            h = block.layer_scalar(block(h, ropes[i], caches[self.config.source(i)]))
        return self.norm(h)


class LayerEmbeddings(GemmaModel):
    """A model with an embedding (P,) for each layer of each of `rows` tokens."""

    config: Gemma4Config

    def __init__(
        self, config: Gemma4Config, blocks: Sequence[Layer], *, width: int, rows: int
    ) -> None:
        super().__init__(config, blocks, logit_cap=config.logit_cap)
        self.width, every = width, config.layers * width
        self.embed_tokens_per_layer = nn.Embedding(rows, every)
        self.per_layer_model_projection = nn.Linear(config.hidden, every)
        self.per_layer_projection_norm = nn.RMSNorm(width, config.norm_eps)

    def layer_embeddings(self, tokens: Tensor, h: Tensor) -> list[Tensor]:
        """Tokens i32 (N,) and their hidden states (N, E) -> for each layer (N, P)."""
        looked_up = self.embed_tokens_per_layer(tokens) * math.sqrt(self.width)
        projected = self.per_layer_model_projection(h) * self.config.hidden**-0.5
        projected = self.per_layer_projection_norm(f.split_heads(projected, self.width))
        every = (projected + f.split_heads(looked_up, self.width)) * math.sqrt(0.5)
        layers = range(self.config.layers)
        return [f.flatten(f.narrow(every, 1, i, i + 1), first=1) for i in layers]


class EmbeddingGemma4(LayerEmbeddings):
    """A token has an embedding for each layer."""

    layers: Sequence[EmbeddingBlock]

    def __init__(self, config: Gemma4Config, width: int) -> None:
        blocks = [EmbeddingBlock(config, index, width) for index in range(config.layers)]
        super().__init__(config, blocks, width=width, rows=config.vocab_size)

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h = self.embed(tokens) if h is None else h
        embeddings, ropes = self.layer_embeddings(tokens, h), self.rope_tables(positions)
        for i, block in enumerate(self.layers):
            h = block(h, ropes[i], caches[self.config.source(i)])
            h = block.finish(h, embeddings[i])
        return self.norm(h)


def gemma4(config: Gemma4Config) -> Gemma4 | EmbeddingGemma4:
    """The model of a configuration."""
    width = config.layer_embedding
    return Gemma4(config) if width is None else EmbeddingGemma4(config, width)


ARCHITECTURE = Architecture(
    name="gemma4",
    config=Gemma4Config,
    model_types=("gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Gemma4Config(**fields_from_gguf(data)),
    model=gemma4,
    tensors=replace(
        gemma3.ARCHITECTURE.tensors,
        norm_offset=0.0,
        folder={"layer_scalar.weight": "layer_scalar"},
        others=("audio_tower.", "embed_audio.", "embed_vision.", "vision_tower."),
        optional=("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"),
    ),
)
