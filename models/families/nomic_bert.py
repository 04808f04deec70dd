"""Nomic's BERT: rotary positions in place of a table, gated MLPs, and biases in norms only.

Source: "Nomic Embed: Training a Reproducible Long Context Text Embedder" (Nussbaum et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import MLP, FusedAttention, rope_table
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

_ROPE_BASE = 1000.0


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `token_types` are the rows of the table of token types."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int
    tied: bool = True


class NomicBertBlock(nn.Module):
    """One layer: attention and MLP, each added to its input and normalized."""

    def __init__(self, config: Config) -> None:
        self.self_attn = FusedAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)
        self.output_norm = nn.LayerNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.attention_norm(h + self.self_attn(h, rope, text))
        return self.output_norm(h + self.mlp(h))


class NomicBert(nn.Module):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.embed_types = nn.Embedding(config.token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.layers = [NomicBertBlock(config) for _ in range(config.layers)]

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E)."""
        rope = rope_table(self.config, texts.positions)
        h = self.norm(self.embed_tokens(texts.tokens) + self.embed_types(texts.types))
        for block in self.layers:
            h = block(h, rope, texts.layer())
        return texts.pooled(h, self.config.pooling)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Older files have GPT-2's keys, and a context beyond the trained one."""
    data.rename(
        n_layer="num_hidden_layers", n_embd="hidden_size", n_inner="intermediate_size",
        n_head="num_attention_heads", n_positions="max_position_embeddings",
        layer_norm_epsilon="layer_norm_eps", rotary_emb_base="rope_theta",
    )  # fmt: skip
    data.fixed(hidden_act="silu", activation_function="swiglu", causal=False, prenorm=False)
    data.fixed(qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, use_rms_norm=False)
    data.fixed(rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None)
    data.fixed(parallel_block=False, scale_attn_weights=True)
    data.fixed(scale_attn_by_inverse_layer_idx=False)
    data.ignore(
        "attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout", "dense_seq_output",
        "fused_bias_fc", "fused_dropout_add_ln", "hidden_dropout_prob", "pad_vocab_size_multiple",
        "parallel_block_tied_norm", "reorder_and_upcast_attn", "rotary_scaling_factor",
        "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
        "summary_use_proj", "tie_word_embeddings", "use_flash_attn", "use_xentropy",
    )  # fmt: skip
    data.assume(rope_theta=_ROPE_BASE)
    fields = encoder_fields(data)
    data.fixed(head_dim=fields["head_dim"])
    trained = data.size("max_trained_positions", default=fields["max_context"])
    fields["max_context"] = min(fields["max_context"], trained)
    return Config(
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"]).fields,
        norm_eps=data.number("layer_norm_eps", default=1e-12),
        token_types=data.size("type_vocab_size", default=2),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = encoder_fields_from_gguf(data)
    return Config(
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"], _ROPE_BASE).fields,
        token_types=data.rows("token_types.weight"),
    )


ARCHITECTURE = EncoderArchitecture(
    name="nomic-bert",
    config=Config,
    model_types=("nomic_bert",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=NomicBert,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "embed_types": "token_types",
            "norm": "token_embd_norm",
            "attention_norm": "attn_output_norm",
            "output_norm": "layer_output_norm",
        },
        folder={
            "embed_tokens": "embeddings.word_embeddings",
            "embed_types": "embeddings.token_type_embeddings",
            "norm": "emb_ln",
            "self_attn.qkv_proj": "attn.Wqkv",
            "self_attn.o_proj": "attn.out_proj",
            "attention_norm": "norm1",
            "mlp.up_proj": "mlp.fc11",
            "mlp.gate_proj": "mlp.fc12",
            "mlp.down_proj": "mlp.fc2",
            "output_norm": "norm2",
        },
        layers="encoder.layers",
        prefixes=("",),
        others=("cls.", "pooler."),
    ),
)
