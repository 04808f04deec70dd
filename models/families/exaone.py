"""EXAONE 3 and 3.5: Llama under the names of GPT-2 ("EXAONE 3.5", 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.rename(
        activation_function="hidden_act",
        layer_norm_epsilon="rms_norm_eps",
        num_layers="num_hidden_layers",
    )
    data.ignore("embed_dropout")
    return DecoderConfig(**from_config_json(data))


ARCHITECTURE = Architecture(
    name="exaone",
    config=DecoderConfig,
    model_types=("exaone",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(
        prefixes=("transformer.",),
        layers="h",
        folder={
            "input_layernorm": "ln_1",
            **{f"self_attn.{part}_proj": f"attn.attention.{part}_proj" for part in "qkv"},
            "self_attn.o_proj": "attn.attention.out_proj",
            "post_attention_layernorm": "ln_2",
            "mlp.gate_proj": "mlp.c_fc_0",
            "mlp.up_proj": "mlp.c_fc_1",
            "mlp.down_proj": "mlp.c_proj",
            "embed_tokens": "wte",
            "norm": "ln_f",
        },
    ),
)
