"""Jina's second BERT: scores fall with the distance of tokens (ALiBi), and MLPs have a gate.

Source: "Jina Embeddings 2: 8192-Token General-Purpose Text Embeddings for Long Documents" (Günther
et al., 2023), "Train Short, Test Long" (Press et al., 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hearthd.models.config import ModelConfig, OtherFamily
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf
from hearthd.models.encoder.encoder_layers import SelfAttention
from hearthd.models.families.bert import NAMES

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

# In config.json of the models for code, whose layers have more norms: where their definition is.
_FOR_CODE = "qk-post-norm"
_NORM_OF_QUERIES = "blk.0.attn_q_norm.weight"


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """The shape of a model; `token_types` are the rows of the table of token types."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int


class GatedMLP(nn.Module):
    """down(gelu(gate(x)) * up(x)), where down has a bias."""

    def __init__(self, config: Config) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.ffn)
        self.up_proj = nn.Linear(config.hidden, config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=True)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu(self.gate_proj(x)) * self.up_proj(x))


class JinaBertBlock(nn.Module):
    """One layer: attention, of a kind, and MLP, each added to its input and normalized."""

    attention: ClassVar[type[Any]] = SelfAttention

    def __init__(self, config: Config) -> None:
        self.self_attn = self.attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.mlp = GatedMLP(config)
        self.output_norm = nn.LayerNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.attention_norm(h + self.self_attn(h, text))
        return self.output_norm(h + self.mlp(h))


class JinaBert(nn.Module):
    """The encoder, of blocks of a kind."""

    block: ClassVar[type[Any]] = JinaBertBlock

    def __init__(self, config: Config) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.embed_types = nn.Embedding(config.token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.layers = [self.block(config) for _ in range(config.layers)]

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E)."""
        distances = texts.alibi(self.config.heads)
        h = self.norm(self.embed_tokens(texts.tokens) + self.embed_types(texts.types))
        for block in self.layers:
            h = block(h, texts.layer(added=distances))
        return texts.pooled(h, self.config.pooling)


def from_hugging_face(data: ConfigJson, *, for_code: bool = False) -> Config:
    """Read config.json, whose `model_type` is BERT's; its `auto_map` says where the code is."""
    if data.text("position_embedding_type", default="absolute") != "alibi":
        raise OtherFamily("config.json: position_embedding_type: supported is 'alibi'")
    if (_FOR_CODE in _definition(data)) != for_code:
        raise OtherFamily(f"config.json: auto_map: {_FOR_CODE} is for the models for code only")
    data.fixed(hidden_act="gelu", feed_forward_type="geglu", emb_pooler="mean", is_decoder=False)
    data.fixed(add_cross_attention=False)
    data.ignore(
        "attention_probs_dropout_prob", "attn_implementation", "classifier_dropout",
        "gradient_checkpointing", "hidden_dropout_prob", "model_max_length", "tie_word_embeddings",
    )  # fmt: skip
    return Config(
        **encoder_fields(data),
        norm_eps=data.number("layer_norm_eps", default=1e-12),
        token_types=data.size("type_vocab_size", default=2),
    )


def _definition(data: ConfigJson) -> str:
    """Where the definition of the configuration is."""
    if not data.has("auto_map"):
        return ""
    section = data.section("auto_map")
    tasks = ("MaskedLM", "QuestionAnswering", "SequenceClassification", "TokenClassification")
    section.ignore("AutoModel", *(f"AutoModelFor{task}" for task in tasks))
    return section.text("AutoConfig", default="")


def from_gguf(data: GgufMetadata, *, for_code: bool = False) -> Config:
    """Read GGUF metadata; both kinds have the same architecture there."""
    if data.has_tensor(_NORM_OF_QUERIES) != for_code:
        raise OtherFamily(f"{_NORM_OF_QUERIES} is for the models for code only")
    return Config(**encoder_fields_from_gguf(data), token_types=data.rows("token_types.weight"))


JINA_NAMES = TensorNames(
    gguf={**NAMES.gguf, "mlp.gate_proj": "ffn_gate"},
    folder={
        **NAMES.folder,
        "mlp.down_proj": "mlp.wo",
        "output_norm": "mlp.layernorm",
    },
    joined={"mlp.gated_layers": ("mlp.gate_proj", "mlp.up_proj")},
    joined_in_gguf={"ffn_up": ("ffn_gate", "ffn_up")},
    layers=NAMES.layers,
    prefixes=NAMES.prefixes,
    others=NAMES.others,
)

ARCHITECTURE = EncoderArchitecture(
    name="jina-bert-v2",
    config=Config,
    model_types=("bert",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=JinaBert,
    tensors=JINA_NAMES,
)
