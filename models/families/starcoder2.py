"""StarCoder 2: Llama with LayerNorm, biases, and an MLP without a gate.

Source: "StarCoder 2 and The Stack v2" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel, PlainMLP
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


class Starcoder2(DecoderModel):
    """Llama's blocks with other norms and another MLP."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [
            Block(config, Attention(config), PlainMLP(config, f.gelu_tanh), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json. The window holds for every layer."""
    data.rename(norm_epsilon="rms_norm_eps")
    data.assume(rms_norm_eps=1e-5, tie_word_embeddings=True)
    data.fixed(mlp_type="default", norm_type="layer_norm")
    data.ignore("embedding_dropout", "residual_dropout")
    fields = from_config_json(data, activation="gelu_pytorch_tanh")
    window = data.size("sliding_window", default=None)
    biases = dict.fromkeys(
        ("attention_bias", "output_bias", "mlp_bias"), data.flag("use_bias", default=True)
    )
    return DecoderConfig(**fields | biases, windows=(window,) * fields["layers"] if window else ())


ARCHITECTURE = Architecture(
    name="starcoder2",
    config=DecoderConfig,
    model_types=("starcoder2",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Starcoder2,
    tensors=TensorNames(folder={"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}),
)
