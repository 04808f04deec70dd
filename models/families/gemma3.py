"""Gemma 3 (text): layers with norms before and after, normalized heads, and sliding layers.

Source: "Gemma 3 Technical Report" (2025) and the reference implementation google/gemma_pytorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import FULL, DecoderConfig, local_rope_base
from hearthd.models.decoder.config.gemma_config import config_fields, gguf_fields
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import MLP, DecoderModel, NormedAttention
from hearthd.models.decoder.tensor_names import GGUF_NAMES_WITH_NORMS_AFTER, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 6  # every sixth layer attends to the whole context

GEMMA_NAMES = TensorNames(gguf=GGUF_NAMES_WITH_NORMS_AFTER, norm_offset=1.0)


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `rope_base` and its scaling are for layers without a window.

    query_scale      factor of q k^T
    local_rope_base  base of the rotary positions of layers with a window
    """

    query_scale: float
    norm_eps: float = 1e-6
    rope_base: float = 1_000_000.0
    local_rope_base: float = 10_000.0
    tied: bool = True

    @property
    @override
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window, whose rotary positions are not scaled."""
        return replace(self, **Rope(base=self.local_rope_base).fields)


class GemmaBlock(nn.Module):
    """One layer: attention and MLP, each normalized before and after."""

    def __init__(
        self,
        config: DecoderConfig,
        self_attn: Layer,
        mlp: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`mlp` is one with GeGLU unless given."""
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = mlp or MLP(config, f.gelu_tanh)
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
    """A model whose embeddings are scaled by the square root of their width.

    A logit l becomes `logit_cap` * tanh(l / `logit_cap`), if it is given.
    """

    def __init__(
        self, config: DecoderConfig, blocks: Sequence[Layer], *, logit_cap: float | None = None
    ) -> None:
        super().__init__(config, blocks)
        self.logit_cap = logit_cap

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return self.embed_tokens(tokens) * math.sqrt(self.config.hidden)

    @override
    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        logits = super().logits(x)
        return logits if self.logit_cap is None else f.soft_cap(logits, cap=self.logit_cap)


class Gemma3(GemmaModel):
    """Blocks with normalized heads."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            GemmaBlock(config, NormedAttention(config, scale=config.query_scale))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    return Config(**text_fields(data.text_section()))


def text_fields(data: ConfigJson, *, bidirectional: bool = False) -> dict[str, Any]:
    """The fields of `Config`, from the configuration of a text model; raises ConfigError."""
    # The defaults of transformers' Gemma3TextConfig: files leave out what equals them.
    data.assume(vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26)
    data.assume(num_attention_heads=8, num_key_value_heads=4, head_dim=256)
    data.assume(query_pre_attn_scalar=256.0, rope_theta=1_000_000.0)
    data.assume(max_position_embeddings=131072, sliding_window=4096)
    data.fixed(attn_logit_softcapping=None, final_logit_softcapping=None)
    period = data.size("_sliding_window_pattern", default=_PERIOD)
    period = data.size("sliding_window_pattern", default=period)
    fields = config_fields(
        data, period, lambda data, *shape: data.rope(*shape, FULL), bidirectional=bidirectional
    )
    base = local_rope_base(data, fields["head_dim"], fields["max_context"])
    return fields | {"local_rope_base": base}


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config`, from GGUF metadata; raises ConfigError."""
    period = data.size("attention.sliding_window_pattern", default=_PERIOD)
    fields = gguf_fields(data, period, layers_27b=62, rope_base=1_000_000.0)
    return fields | {"local_rope_base": data.number("rope.freq_base_swa", default=10_000.0)}


ARCHITECTURE = Architecture(
    name="gemma3",
    config=Config,
    model_types=("gemma3_text", "gemma3"),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Gemma3,
    # The larger models come with a vision tower, and with the text model one level down.
    tensors=replace(
        GEMMA_NAMES,
        prefixes=("model.", "", "model.language_model.", "language_model.model."),
        others=("vision_tower.", "multi_modal_projector."),
    ),
)
