"""Jina's third embedder: XLM-RoBERTa with rotary positions, without the adapters of its tasks.

Source: "jina-embeddings-v3: Multilingual Embeddings With Task LoRA" (Sturua et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import PlainMLP
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_config import encoder_fields, encoder_fields_from_gguf
from hearthd.models.encoder.rotary_encoder import ROTARY_GGUF_NAMES, RotaryEncoder

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

TASKS = "lora_adaptations"  # in config.json: the tasks that have an adapter
_TYPE_OF_ROBERTA = "xlm-roberta"
_ROPE_BASE = 20_000.0


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `token_types` are the rows of the table of token types."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int
    attention_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    tied: bool = True


class JinaBertV3(RotaryEncoder):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        mlps = [PlainMLP(config, f.gelu) for _ in range(config.layers)]
        super().__init__(config, mlps, token_types=config.token_types)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Files for Jina's own code have the type of XLM-RoBERTa."""
    if data.text("model_type", default="") == _TYPE_OF_ROBERTA:
        if data.text("position_embedding_type", default="absolute") != "rotary":
            raise OtherFamily("config.json: position_embedding_type: supported is 'rotary'")
        data.rename(rotary_emb_base="rope_theta")
        data.ignore(
            TASKS, "load_trained_adapters", "lora_alpha", "lora_dropout_p",
            "lora_main_params_trainable", "lora_rank", "matryoshka_dimensions", "output_past",
            "task_instructions", "use_flash_attn", "use_reentrant",
        )  # fmt: skip
        data.fixed(emb_pooler="mean", truncate_dim=None)
    data.fixed(hidden_act="gelu")
    data.ignore(
        "attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob",
        "tie_word_embeddings",
    )  # fmt: skip
    data.assume(rope_theta=_ROPE_BASE)
    fields = encoder_fields(data)
    return Config(
        **fields,
        **data.rope(fields["head_dim"], fields["max_context"]).fields,
        norm_eps=data.number("layer_norm_eps", default=1e-5),
        token_types=data.size("type_vocab_size", default=1),
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
    name="jina-bert-v3",
    config=Config,
    model_types=("jina_embeddings_v3", _TYPE_OF_ROBERTA),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=JinaBertV3,
    tensors=TensorNames(
        gguf=ROTARY_GGUF_NAMES,
        folder={
            "embed_tokens": "embeddings.word_embeddings",
            "embed_types": "embeddings.token_type_embeddings",
            "norm": "emb_ln",
            "self_attn.qkv_proj": "mixer.Wqkv",
            "self_attn.o_proj": "mixer.out_proj",
            "attention_norm": "norm1",
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
            "output_norm": "norm2",
        },
        layers="encoder.layers",
        prefixes=("", "roberta."),
        others=("lm_head.", "pooler."),
    ),
)
