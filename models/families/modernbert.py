"""ModernBERT: an encoder with rotary positions, gated MLPs, and layers that see neighbors alone.

Source: "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient,
and Long Context Finetuning and Inference" (Warner et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    DecoderConfig,
    local_rope_base,
    windows_by_type,
)
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import ACTIVATIONS, DecoderModel, FusedAttention, FusedMLP
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf
from hearthd.models.encoder.encoder_layers import ScoreHead
from hearthd.models.encoder.texts import both_sides

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

_ROPE_BASE = 160_000.0
_HEAD_POOLINGS = ("cls", "mean")
_PERIOD = 3  # the first layer of each three sees the whole text


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `pooling` may also be `rank`: the score of a classification head.

    local_rope_base  base of the rotary positions of layers with a window
    head_pooling     the vector that the classification head reads
    activation       of the gates of MLPs
    """

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls", "rank")

    local_rope_base: float
    head_pooling: str = "cls"
    activation: str = "gelu"
    tied: bool = True

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_pooling not in _HEAD_POOLINGS:
            names = ", ".join(_HEAD_POOLINGS)
            raise ConfigError(f"classifier pooling: got {self.head_pooling}, supported: {names}")

    @property
    @override
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window."""
        return replace(self, **Rope(base=self.local_rope_base).fields)


class ModernBertBlock(nn.Module):
    """One layer: attention and MLP, each normalized before; embeddings are normalized already."""

    def __init__(self, config: Config, *, first: bool) -> None:
        norm = (config.hidden, config.norm_eps)
        self.input_layernorm = None if first else nn.LayerNorm(*norm, bias=False)
        self.self_attn = FusedAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(*norm, bias=False)
        self.mlp = FusedMLP(config, ACTIVATIONS[config.activation])

    def __call__(self, h: Tensor, rope: RopeTable | None, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = h if self.input_layernorm is None else self.input_layernorm(h)
        h = h + self.self_attn(x, rope, text)
        return h + self.mlp(self.post_attention_layernorm(h))


class ModernBert(DecoderModel):
    """The encoder; with `rank`, a classification head reads the first hidden state or the mean."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(
            config, [ModernBertBlock(config, first=layer == 0) for layer in range(config.layers)]
        )
        self.embed_norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=False)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=False)
        if config.pooling == "rank":
            self.head = nn.Linear(config.hidden, config.hidden)
            self.head_norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=False)
            self.classifier = ScoreHead(config.hidden)

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return self.embed_norm(self.embed_tokens(tokens))

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E), or the scores of pairs (B, 1)."""
        layers = [texts.layer(self.window(layer)) for layer in range(self.config.layers)]
        h = self(texts.tokens, texts.positions, layers)
        if self.config.pooling != "rank":
            return texts.pooled(h, self.config.pooling)
        x = self.head(texts.pooled(h, self.config.head_pooling))
        return self.classifier(self.head_norm(f.gelu(x)))


def _have_windows(layers: int, period: int) -> list[bool]:
    """For each layer, whether it is another than the first one of each `period`."""
    return [layer % period != 0 for layer in range(layers)]


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Older files say the period of the layers without a window."""
    data.fixed(attention_bias=False, classifier_bias=False, mlp_bias=False, norm_bias=False)
    data.fixed(classifier_activation="gelu")
    data.ignore(
        "classifier_dropout", "cls_token_id", "decoder_bias", "deterministic_flash_attn",
        "embedding_dropout", "gradient_checkpointing", "initializer_cutoff_factor",
        "layer_norm_eps", "mlp_dropout", "position_embedding_type", "reference_compile",
        "repad_logits_with_grad", "sep_token_id", "sparse_pred_ignore_index", "sparse_prediction",
        "tie_word_embeddings",
    )  # fmt: skip
    fields = encoder_fields(data)
    heads = fields["head_dim"], fields["max_context"]
    period = data.size("global_attn_every_n_layers", default=_PERIOD)
    data.assume(
        rope_theta=data.number("global_rope_theta", default=_ROPE_BASE),
        sliding_window=data.size("local_attention", default=128),
    )
    return Config(
        **fields,
        **data.rope(*heads, FULL).fields,
        local_rope_base=local_rope_base(
            data, *heads, default=data.number("local_rope_theta", default=10_000.0)
        ),
        windows=both_sides(windows_by_type(data, _have_windows(fields["layers"], period))),
        norm_eps=data.number("norm_eps", default=1e-5),
        head_pooling=data.choice("classifier_pooling", _HEAD_POOLINGS, default="cls"),
        activation=data.choice("hidden_activation", ACTIVATIONS, default="gelu"),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = encoder_fields_from_gguf(data)
    period = data.size("attention.sliding_window_pattern", default=_PERIOD)
    window = data.size("attention.sliding_window")
    windows = (window if has else None for has in _have_windows(fields["layers"], period))
    return Config(
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"], _ROPE_BASE).fields,
        local_rope_base=data.number("rope.freq_base_swa", default=10_000.0),
        windows=both_sides(tuple(windows)),
        head_pooling=data.pooling("classifier.pooling_type"),
        activation=data.choice("hidden_activation", ACTIVATIONS, default="gelu"),
    )


ARCHITECTURE = EncoderArchitecture(
    name="modern-bert",
    config=Config,
    model_types=("modernbert",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=ModernBert,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "embed_norm": "token_embd_norm",
            "head": "cls",
            "head_norm": "cls.norm",
            "classifier": "cls.output",
        },
        folder={
            "embed_tokens": "embeddings.tok_embeddings",
            "embed_norm": "embeddings.norm",
            "input_layernorm": "attn_norm",
            "self_attn.qkv_proj": "attn.Wqkv",
            "self_attn.o_proj": "attn.Wo",
            "post_attention_layernorm": "mlp_norm",
            "mlp.gate_up_proj": "mlp.Wi",
            "mlp.down_proj": "mlp.Wo",
            "norm": "final_norm",
            "head": "head.dense",
            "head_norm": "head.norm",
        },
        # The head of pretraining.
        others=("head.", "decoder."),
    ),
)
