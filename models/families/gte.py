"""GTE: BERT with rotary positions and gated MLPs, as Arctic Embed M v2.0.

Source: "mGTE: Generalized Long-Context Text Representation and Reranking Models for Multilingual
Text Retrieval" (Zhang et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields
from hearthd.models.encoder.rotary_encoder import RotaryEncoder

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `token_types` are the rows of the table of token types, or None."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int | None
    attention_bias: bool = True
    output_bias: bool = True
    tied: bool = True


class GteMLP(nn.Module):
    """down(gelu(gate(x)) * up(x)), where one projection gives up and gate; down has a bias."""

    def __init__(self, config: Config) -> None:
        self.up_gate_proj = nn.Linear(config.hidden, 2 * config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=True)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        y = self.up_gate_proj(x)
        width = y.shape[1] // 2
        up, gate = f.narrow(y, 1, 0, width), f.narrow(y, 1, width, 2 * width)
        return self.down_proj(f.gelu(gate) * up)


class Gte(RotaryEncoder):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        mlps = [GteMLP(config) for _ in range(config.layers)]
        super().__init__(config, mlps, token_types=config.token_types)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(hidden_act="gelu", position_embedding_type="rope", layer_norm_type="layer_norm")
    data.fixed(logn_attention_scale=False, logn_attention_clip1=False, pack_qkv=True)
    data.ignore(
        "attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob",
        "matryoshka_dimensions", "tie_word_embeddings", "unpad_inputs",
        "use_memory_efficient_attention",
    )  # fmt: skip
    data.assume(rope_theta=160_000.0)
    fields = encoder_fields(data)
    return Config(
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"]).fields,
        norm_eps=data.number("layer_norm_eps", default=1e-12),
        token_types=data.count("type_vocab_size", default=1) or None,
    )


def from_gguf(_: GgufMetadata) -> Config:
    """Raises ConfigError: llama.cpp has no such files."""
    raise ConfigError("gte is not read from a GGUF file: bake the Hugging Face folder")


ARCHITECTURE = EncoderArchitecture(
    name="gte",
    config=Config,
    model_types=("gte", "new"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gte,
    tensors=TensorNames(
        folder={
            "embed_tokens": "embeddings.word_embeddings",
            "embed_types": "embeddings.token_type_embeddings",
            "norm": "embeddings.LayerNorm",
            "self_attn.qkv_proj": "attention.qkv_proj",
            "self_attn.o_proj": "attention.o_proj",
            "attention_norm": "attn_ln",
            "mlp.up_gate_proj": "mlp.up_gate_proj",
            "mlp.down_proj": "mlp.down_proj",
            "output_norm": "mlp_ln",
        },
        layers="encoder.layer",
        prefixes=("", "new."),
        others=("lm_head.", "pooler."),
    ),
)
