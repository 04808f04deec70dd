"""Nomic's BERT: rotary positions in place of a table, gated MLPs, and biases in norms only.

Source: "Nomic Embed: Training a Reproducible Long Context Text Embedder" (Nussbaum et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import MLP
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf
from hearthd.models.encoder.rotary_encoder import ROTARY_GGUF_NAMES, RotaryEncoder

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

EXPERTS_KEY = "moe_every_n_layers"
_ROPE_BASE = 1000.0


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `token_types` are the rows of the table of token types."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int
    tied: bool = True


class NomicBert(RotaryEncoder):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        mlps = [MLP(config) for _ in range(config.layers)]
        super().__init__(config, mlps, token_types=config.token_types)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    if data.count(EXPERTS_KEY, default=0):
        raise OtherFamily(f"config.json: {EXPERTS_KEY} is for models with experts only")
    data.fixed(hidden_act="silu", activation_function="swiglu")
    data.fixed(qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False)
    return Config(**nomic_fields(data))


def nomic_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config`. Older files have GPT-2's keys, and a context beyond the trained one.

    Raises ConfigError.
    """
    data.rename(
        n_layer="num_hidden_layers", n_embd="hidden_size", n_inner="intermediate_size",
        n_head="num_attention_heads", n_positions="max_position_embeddings",
        layer_norm_epsilon="layer_norm_eps", rotary_emb_base="rope_theta",
    )  # fmt: skip
    data.fixed(causal=False, prenorm=False, use_rms_norm=False)
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
    return {
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"]).fields,
        "norm_eps": data.number("layer_norm_eps", default=1e-12),
        "token_types": data.size("type_vocab_size", default=2),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    return Config(**nomic_fields_from_gguf(data))


def nomic_fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config`; raises ConfigError."""
    fields = encoder_fields_from_gguf(data)
    return {
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"], _ROPE_BASE).fields,
        "token_types": data.rows("token_types.weight"),
    }


ARCHITECTURE = EncoderArchitecture(
    name="nomic-bert",
    config=Config,
    model_types=("nomic_bert",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=NomicBert,
    tensors=TensorNames(
        gguf=ROTARY_GGUF_NAMES,
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
