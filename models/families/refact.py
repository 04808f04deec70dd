"""Refact 1.6B: Llama with linear biases in place of positions, and one key/value head.

Source: "Introducing Refact Code LLM" (Refact.ai, 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.layers import MLP, Block
from hearthd.models.decoder.linear_biases import BiasedAttention, BiasedConfig, BiasedModel
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import gpt2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson

_MULTIPLE = 256  # of the width of an MLP


class Refact(BiasedModel):
    """Llama's blocks, whose heads have biases."""

    def __init__(self, config: BiasedConfig) -> None:
        layers = range(config.layers)
        super().__init__(
            config, [Block(config, BiasedAttention(config), MLP(config)) for _ in layers]
        )


def from_hugging_face(data: ConfigJson) -> BiasedConfig:
    """Read config.json. An MLP is two thirds as wide as in GPT-2, which `n_inner` does not say."""
    data.fixed(multi_query=True, tie_word_embeddings=False)
    data.ignore(
        "attention_bias_in_fp32", "attention_softmax_in_fp32", "do_sample",
        "scale_attention_softmax_in_fp32",
    )  # fmt: skip
    fields = gpt2.fields_from_hugging_face(data)
    width = 4 * fields["hidden"] * 2 // 3
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), False)
    changes = {"kv_heads": 1, "tied": False, "ffn": -(-width // _MULTIPLE) * _MULTIPLE}
    return BiasedConfig(**fields | biases | changes)


ARCHITECTURE = Architecture(
    name="refact",
    config=BiasedConfig,
    model_types=("gpt_refact",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: BiasedConfig(**from_gguf_metadata(data)),
    model=Refact,
    tensors=TensorNames(
        prefixes=("transformer.",),
        layers="h",
        folder={
            "input_layernorm": "ln_1",
            "self_attn.q_proj": "attn.q",
            "self_attn.o_proj": "attn.c_proj",
            "post_attention_layernorm": "ln_2",
            "mlp.down_proj": "mlp.c_proj",
            "embed_tokens": "wte",
            "norm": "ln_f",
        },
        joined={
            "attn.kv": ("self_attn.k_proj", "self_attn.v_proj"),
            "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
        },
    ),
)
