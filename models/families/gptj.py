"""GPT-J: attention and MLP side by side after one LayerNorm; neighbors turn in a part of each head.

Source: "GPT-J-6B" (EleutherAI, 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.config.rope_scaling import first_columns
from hearthd.models.decoder.layers import Attention, DecoderModel, ParallelBlock, PlainMLP
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.families import gpt2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class GptJ(DecoderModel):
    """Parallel blocks, and an output head with a bias."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [
            ParallelBlock(config, Attention(config), PlainMLP(config, f.gelu_tanh))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab_size, bias=True)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(activation_function="gelu_new", rotary=True, tie_word_embeddings=False)
    data.ignore("gradient_checkpointing", "tokenizer_class")
    turning = data.size("rotary_dim", default=64)
    fields = gpt2.fields_from_hugging_face(data)
    rope = first_columns(fields["rope_base"], turning, fields["head_dim"]).fields
    without = {"tied": False, "attention_bias": False, "output_bias": False}
    return DecoderConfig(**fields | rope | without)


def from_gguf(_: GgufMetadata) -> DecoderConfig:
    """Raises ConfigError: llama.cpp has the name alone."""
    raise ConfigError("llama.cpp writes no GGUF files of GPT-J: bake the Hugging Face folder")


ARCHITECTURE = Architecture(
    name="gptj",
    config=DecoderConfig,
    model_types=("gptj",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GptJ,
    tensors=TensorNames(
        prefixes=("transformer.", ""),
        layers="h",
        interleaved=QUERIES_AND_KEYS,
        folder_interleaved=True,
        folder={
            "input_layernorm": "ln_1",
            **{f"self_attn.{part}_proj": f"attn.{part}_proj" for part in "qkv"},
            "self_attn.o_proj": "attn.out_proj",
            "mlp.up_proj": "mlp.fc_in",
            "mlp.down_proj": "mlp.fc_out",
            "embed_tokens": "wte",
            "norm": "ln_f",
        },
        masks=("attn.bias", "attn.masked_bias"),
    ),
)
