"""BERT: vectors of texts, or the score of a pair of texts.

Source: "BERT: Pre-training of Deep Bidirectional Transformers" (Devlin et al., 2018),
"Sentence-BERT" (Reimers and Gurevych, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hearthd.models.config import ModelConfig
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn, ops
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf
from hearthd.models.encoder.encoder_layers import EncoderBlock, ScoreHead

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """The shape of a model; `pooling` may also be `rank`: the score of a classification head.

    token_types  rows of the table of token types
    skipped      rows of the table of positions that precede the row of position 0, or None
    """

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls", "rank")

    token_types: int
    skipped: int | None = None


class Bert(nn.Module):
    """The encoder; with `rank`, a classification head reads the first hidden state."""

    def __init__(self, config: Config) -> None:
        self.config = config
        positions = config.max_context + (config.skipped or 0)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.embed_positions = nn.Embedding(positions, config.hidden)
        self.embed_types = nn.Embedding(config.token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.layers = [EncoderBlock(config) for _ in range(config.layers)]
        if config.pooling == "rank":
            self.pooler = nn.Linear(config.hidden, config.hidden, bias=True)
            self.classifier = ScoreHead(config.hidden)

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E), or the scores of pairs (B, 1)."""
        positions = texts.positions + (self.config.skipped or 0)
        h = self.embed_tokens(texts.tokens) + self.embed_positions(positions)
        h = self.norm(h + self.embed_types(texts.types))
        for block in self.layers:
            h = block(h, texts.layer())
        if self.config.pooling != "rank":
            return texts.pooled(h, self.config.pooling)
        return self.classifier(ops.tanh(self.pooler(texts.pooled(h, "cls"))))


def config_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config`, from config.json; raises ConfigError."""
    data.fixed(hidden_act="gelu", position_embedding_type="absolute", is_decoder=False)
    data.fixed(add_cross_attention=False)
    data.ignore(
        "attention_probs_dropout_prob", "classifier_dropout", "gradient_checkpointing",
        "hidden_dropout_prob", "output_past", "tie_word_embeddings",
    )  # fmt: skip
    return encoder_fields(data) | {
        "norm_eps": data.number("layer_norm_eps", default=1e-12),
        "token_types": data.size("type_vocab_size", default=2),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. XLM-RoBERTa is stored as BERT, without the rows of positions it skips."""
    return Config(**encoder_fields_from_gguf(data), token_types=data.rows("token_types.weight"))


NAMES = TensorNames(
    gguf={
        "embed_tokens": "token_embd",
        "embed_positions": "position_embd",
        "embed_types": "token_types",
        "norm": "token_embd_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "attention_norm": "attn_output_norm",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "output_norm": "layer_output_norm",
        "pooler": "cls",
        "classifier": "cls.output",
    },
    folder={
        "embed_tokens": "embeddings.word_embeddings",
        "embed_positions": "embeddings.position_embeddings",
        "embed_types": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "self_attn.q_proj": "attention.self.query",
        "self_attn.k_proj": "attention.self.key",
        "self_attn.v_proj": "attention.self.value",
        "self_attn.o_proj": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
        "output_norm": "output.LayerNorm",
        "pooler": "pooler.dense",
    },
    layers="encoder.layer",
    prefixes=("", "bert."),
    # Heads of pretraining, and a table that counts from 0.
    others=("pooler.", "cls.", "embeddings.position_ids"),
)

ARCHITECTURE = EncoderArchitecture(
    name="bert",
    config=Config,
    model_types=("bert",),
    read_config_json=lambda data: Config(**config_fields(data)),
    read_gguf=from_gguf,
    model=Bert,
    tensors=NAMES,
)
