"""Phi-1, 1.5 and 2: attention and MLP side by side after one LayerNorm, with biases everywhere.

Source: "Textbooks Are All You Need" (2023) and its second part; the blocks are GPT-J's (2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.layers import Attention, ParallelBlock, PlainMLP
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson

_SHARE = 0.5  # of the columns of a head that turn


class Phi2(PartialRopeModel):
    """Parallel blocks, and an output head with a bias."""

    def __init__(self, config: PartialRopeConfig) -> None:
        blocks = [
            ParallelBlock(config, Attention(config), PlainMLP(config, f.gelu_tanh))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab_size, bias=True)


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json."""
    data.rename(layer_norm_eps="rms_norm_eps")
    data.assume(rms_norm_eps=1e-5)
    data.fixed(qk_layernorm=False, tie_word_embeddings=False)
    fields = partial_fields(data, _SHARE, activation="gelu_new")
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True)
    return PartialRopeConfig(**fields | biases)


ARCHITECTURE = Architecture(
    name="phi2",
    config=PartialRopeConfig,
    model_types=("phi",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: PartialRopeConfig(**partial_fields_from_gguf(data, _SHARE)),
    model=Phi2,
    tensors=TensorNames(
        folder={
            "self_attn.o_proj": "self_attn.dense",
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
            "norm": "final_layernorm",
        },
        grouped=(JOINED_HEADS,),
    ),
)
