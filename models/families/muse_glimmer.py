"""Muse Glimmer: blocks of Gemma with gated heads; layers without a window have no positions.

Source: the model `muse_glimmer` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from hearthd.models.decoder.layers import MLP, HeadLinear, normalized
from hearthd.models.decoder.tensor_names import (
    GGUF_NAMES_WITH_NORMS_AFTER,
    QUERIES_AND_KEYS,
    TensorNames,
)
from hearthd.models.dsl import nn
from hearthd.models.families import exaone4
from hearthd.models.families.gemma3 import GemmaBlock, GemmaModel
from hearthd.models.families.lfm3 import HeadGatedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # every fourth layer, counted from the last one, attends to the whole context
# The defaults of transformers' MuseGlimmerTextConfig: files leave out what equals them.
_USUAL: dict[str, Any] = {
    "vocab_size": 202_048, "hidden_size": 6656, "intermediate_size": 19968,
    "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "sliding_window": 2048,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(exaone4.Config):
    """The shape of a model.

    query_scale    factor of q k^T
    post_norm_eps  epsilon of the norms after attention and MLP
    logit_factor   multiplies logits
    logit_cap      then a logit l becomes `logit_cap` * tanh(l / `logit_cap`)
    """

    query_scale: float
    post_norm_eps: float = 1e-8
    logit_factor: float
    logit_cap: float | None


class MuseAttention(HeadGatedAttention):
    """Attention with normalized heads, whose results are each multiplied by a number of 0 to 1."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.scale, self.norm_eps = config.query_scale, config.norm_eps
        self.gate_proj = HeadLinear(config.hidden, config.heads, config.head_dim)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().heads(x)
        return normalized(query, self.norm_eps), normalized(key, self.norm_eps), value

    @override
    def gate(self, x: Tensor, heads: Tensor) -> Tensor:
        return self.gate_proj(x)


class MuseBlock(GemmaBlock):
    """One layer, whose norms after attention and MLP have an epsilon of their own."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, MuseAttention(config), MLP(config))
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.post_norm_eps)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.post_norm_eps)


class MuseGlimmer(GemmaModel):
    """A model whose embeddings are normalized."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [MuseBlock(config) for _ in range(config.layers)]
        super().__init__(config, blocks, logit_cap=config.logit_cap)

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return normalized(self.embed_tokens(tokens), self.config.norm_eps)

    @override
    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        return super().logits(x * self.config.logit_factor)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.ignore("out_hidden_size", "projector_hidden_size")
    data = data.text_section(tied=False)
    data.fixed(hidden_activation="silu")
    data.assume(**_USUAL)
    fields = from_config_json(data)
    layers, base = fields["layers"], fields["rope_base"]
    windows = windows_by_type(data, [(layers - 1 - i) % _PERIOD != 0 for i in range(layers)])
    windows = windows or (None,) * layers
    bases = [0.0 if window is None else base for window in windows]
    if (got := data.factors("layer_rope_theta", default=bases)) != bases:
        raise ConfigError(
            f"config.json: layer_rope_theta: got {got!r:.80}, supported: {base} for layers with a "
            "window, 0 for the others"
        )
    return Config(
        **fields,
        windows=windows,
        query_scale=data.number("qk_scale_factor", default=3.87) * fields["head_dim"] ** -0.5,
        post_norm_eps=data.number("post_norm_eps", default=1e-8),
        logit_factor=data.number("output_multiplier", default=0.19611613513818404),
        logit_cap=data.number("final_logit_softcapping", default=20.0),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, and the factors of queries and keys, which norms of heads have."""
    fields = from_gguf_metadata(data)
    base, layers, width = fields["rope_base"], fields["layers"], fields["head_dim"]
    if (local := data.number("rope.freq_base_swa", default=base)) != base:
        raise ConfigError(f"rope.freq_base_swa: got {local}, supported is rope.freq_base, {base}")
    scales = {
        data.constant(f"blk.{layer}.attn_q_norm.weight", width)
        * data.constant(f"blk.{layer}.attn_k_norm.weight", width)
        for layer in range(layers)
    }
    if len(scales) != 1:
        raise ConfigError(f"attn_q_norm: got factors {sorted(scales)!r:.80}, supported is one")
    return Config(
        **fields,
        windows=data.windows_by_layer(layers, _PERIOD) or (None,) * layers,
        query_scale=scales.pop() * width**-0.5,
        logit_factor=data.number("logit_scale"),
        logit_cap=data.number("final_logit_softcapping", default=None),
    )


ARCHITECTURE = Architecture(
    name="muse-glimmer",
    config=Config,
    model_types=("muse_glimmer", "muse_glimmer_text"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=MuseGlimmer,
    tensors=TensorNames(
        gguf=GGUF_NAMES_WITH_NORMS_AFTER,
        interleaved=QUERIES_AND_KEYS,
        norm_offset=1.0,
        offset_norms="layernorm.weight",
        prefixes=("model.language_model.", "model.", ""),
        others=("vision_tower.", "vision_adapter.", "vision_projection."),
        optional=("self_attn.q_norm", "self_attn.k_norm"),
    ),
)
