"""Gemma 4 (text): Gemma 3 with an embedding for each layer, and layers that share keys and values.

Source: the models `gemma4` and `gemma4_text` of transformers (2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    from_gguf_metadata,
    local_rope_base,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.config.gemma_config import gemma_keys
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import NormedAttention, Scale
from hearthd.models.decoder.shared_cache import SharedAttention, SharedCacheConfig
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.families import gemma3
from hearthd.models.families.gemma3 import GemmaBlock, GemmaModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 6  # every sixth layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(SharedCacheConfig):
    """The shape of a model; heads and rotary positions are those of the layers without a window.

    local_head_dim   the width of a head in layers with a window
    local_rope_base  base of their rotary positions
    layer_embedding  P, the width of the embedding of a token for each layer
    ffns             for each layer, the width between the matrices of its MLP
    logit_cap        a logit l becomes cap * tanh(l / cap)
    """

    by_layer = (*SharedCacheConfig.by_layer, "ffns")

    local_head_dim: int
    local_rope_base: float
    layer_embedding: int
    ffns: tuple[int, ...]
    logit_cap: float | None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_head_dim % 2:
            raise ConfigError(f"head_dim must be even, got {self.local_head_dim}")

    @property
    @override
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window."""
        return replace(self, head_dim=self.local_head_dim, **Rope(base=self.local_rope_base).fields)

    @override
    def layer(self, index: int) -> DecoderConfig:
        """The shape of a layer."""
        return replace(super().layer(index), ffn=self.ffns[index])


class Gemma4Attention(NormedAttention):
    """Attention whose values are normalized too."""

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        query, key, value = super().heads(x)
        ones = ops.full(shape=value.shape[2:], value=1.0, dtype=DType.F32)
        return query, key, f.rms_norm(value, ones, eps=self.k_norm.eps)


class Gemma4Block(GemmaBlock):
    """A layer of Gemma 3; then the token's embedding for this layer, through a gate."""

    def __init__(self, config: Config, index: int) -> None:
        shape = config.layer(index)
        attention = SharedAttention if config.shares(index) else Gemma4Attention
        super().__init__(shape, attention(shape, scale=1.0))
        self.per_layer_input_gate = nn.Linear(config.hidden, config.layer_embedding)
        self.per_layer_projection = nn.Linear(config.layer_embedding, config.hidden)
        self.post_per_layer_input_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.layer_scalar = Scale()

    def add_embedding(self, h: Tensor, embedding: Tensor) -> Tensor:
        """(N, E) and the embeddings for this layer (N, P) -> (N, E)."""
        x = f.gelu_tanh(self.per_layer_input_gate(h)) * embedding
        h = h + self.post_per_layer_input_norm(self.per_layer_projection(x))
        return self.layer_scalar(h)


class Gemma4(GemmaModel):
    """A token has an embedding for each layer; the last layers share keys and values."""

    config: Config
    layers: Sequence[Gemma4Block]

    def __init__(self, config: Config) -> None:
        blocks = [Gemma4Block(config, index) for index in range(config.layers)]
        super().__init__(config, blocks, logit_cap=config.logit_cap)
        width = config.layers * config.layer_embedding
        self.embed_tokens_per_layer = nn.Embedding(config.vocab_size, width)
        self.per_layer_model_projection = nn.Linear(config.hidden, width)
        self.per_layer_projection_norm = nn.RMSNorm(config.layer_embedding, config.norm_eps)

    def layer_embeddings(self, tokens: Tensor, h: Tensor) -> Tensor:
        """Tokens i32 (N,) and their hidden states (N, E) -> embeddings by layer (N, layers, P)."""
        width = self.config.layer_embedding
        looked_up = f.split_heads(self.embed_tokens_per_layer(tokens) * math.sqrt(width), width)
        projected = self.per_layer_model_projection(h) * self.config.hidden**-0.5
        projected = self.per_layer_projection_norm(f.split_heads(projected, width))
        return (projected + looked_up) * math.sqrt(0.5)

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h = self.embed(tokens) if h is None else h
        embeddings, ropes = self.layer_embeddings(tokens, h), self.rope_tables(positions)
        for i, block in enumerate(self.layers):
            h = block(h, ropes[i], caches[self.config.source(i)])
            h = block.add_embedding(h, f.flatten(f.narrow(embeddings, 1, i, i + 1), first=1))
        return self.norm(h)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data = data.text_section()
    gemma_keys(data)
    data.fixed(enable_moe_block=False, num_experts=None, top_k_experts=None)
    data.fixed(moe_intermediate_size=None, expert_intermediate_size=None, attention_bias=False)
    data.fixed(attention_k_eq_v=False, num_global_key_value_heads=None)
    head_dim, local_head_dim = data.size("global_head_dim", default=512), data.size("head_dim")
    if data.has("per_layer_config"):  # as transformers saves it
        head_dim = data.size_in_each("per_layer_config", "head_dim")
    fields = from_config_json(data, lambda data, _, most: data.rope(head_dim, most, FULL))
    data.fixed(vocab_size_per_layer_input=fields["vocab_size"])
    layers, ffn = fields["layers"], fields["ffn"]
    shared = data.count("num_kv_shared_layers", default=0)
    shared_ffn = ffn * 2 if data.flag("use_double_wide_mlp", default=False) else ffn
    return Config(
        **fields | {"head_dim": head_dim},
        windows=windows_by_type(data, not_every_nth(_PERIOD, layers)),
        local_head_dim=local_head_dim,
        local_rope_base=local_rope_base(data, local_head_dim, fields["max_context"]),
        layer_embedding=data.size("hidden_size_per_layer_input", default=256),
        caching_layers=layers - shared,
        ffns=(ffn,) * (layers - shared) + (shared_ffn,) * shared,
        logit_cap=data.number("final_logit_softcapping", default=None),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, and the table of rotary divisors."""
    layers = data.size("block_count")
    ffns = data.by_layer("feed_forward_length", layers)
    fields = from_gguf_metadata(data, rope_base=1_000_000.0, ffn=ffns[0])
    local_head_dim = data.size("attention.key_length_swa")
    data.fixed("attention.value_length_swa", local_head_dim)
    data.fixed("rope.dimension_count_swa", local_head_dim)
    return Config(
        **fields,
        windows=data.windows_by_layer(layers),
        local_head_dim=local_head_dim,
        local_rope_base=data.number("rope.freq_base_swa", default=10_000.0),
        layer_embedding=data.size("embedding_length_per_layer_input"),
        caching_layers=layers - data.count("attention.shared_kv_layers", default=0),
        ffns=tuple(ffns),
        logit_cap=data.number("final_logit_softcapping", default=None),
    )


ARCHITECTURE = Architecture(
    name="gemma4",
    config=Config,
    model_types=("gemma4_text", "gemma4"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4,
    tensors=replace(
        gemma3.ARCHITECTURE.tensors,
        norm_offset=0.0,
        folder={"layer_scalar.weight": "layer_scalar"},
        others=("audio_tower.", "embed_audio.", "embed_vision.", "vision_tower."),
        optional=("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"),
    ),
)
