"""Apertus: Llama with normalized heads, and xIELU in place of a gated activation.

Source: "Apertus: Democratizing Open and Compliant LLMs" (2025); xIELU is Huang, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import Block, DecoderModel, NormedAttention
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_NUMBERS = ("alpha_n", "alpha_p", "beta", "eps")


class Xielu(nn.Module):
    """a x^2 + b x above zero, else c (e^min(x, e) - 1 - x) + b x.

    a = softplus(alpha_p), c = b + softplus(alpha_n), b = beta and e = eps, a small negative number.
    """

    def __init__(self) -> None:
        self.alpha_n = nn.parameter(1, dtype=DType.F32)
        self.alpha_p = nn.parameter(1, dtype=DType.F32)
        self.beta = nn.parameter(1, dtype=DType.F32)
        self.eps = nn.parameter(1, dtype=DType.F32)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F)."""
        a, c = f.softplus(self.alpha_p), self.beta + f.softplus(self.alpha_n)
        a, b, c, e = (f.trailing(number, x.shape) for number in (a, self.beta, c, self.eps))
        below = (ops.exponential_minus_one(ops.minimum(x, e)) - x) * c
        is_above = ops.compare(x, ops.full_like(x, 0.0), direction="GT")
        return ops.select(is_above, a * x * x, below) + b * x


class ApertusMLP(nn.Module):
    """down(xIELU(up(x)))."""

    def __init__(self, config: DecoderConfig) -> None:
        self.up_proj = nn.Linear(config.hidden, config.ffn)
        self.act_fn = Xielu()
        self.down_proj = nn.Linear(config.ffn, config.hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(self.act_fn(self.up_proj(x)))


class Apertus(DecoderModel):
    """Blocks with normalized heads and such an MLP."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(
            config,
            [
                Block(config, NormedAttention(config), ApertusMLP(config))
                for _ in range(config.layers)
            ],
        )


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(qk_norm=True, post_norm=False, mlp_bias=False)
    data.ignore("hidden_dropout")
    return DecoderConfig(**from_config_json(data, activation="xielu"))


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata. The numbers of xIELU are by layer, under names without a prefix."""
    return DecoderConfig(**from_gguf_metadata(data))


ARCHITECTURE = Architecture(
    name="apertus",
    config=DecoderConfig,
    model_types=("apertus",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Apertus,
    tensors=TensorNames(
        folder={
            "input_layernorm": "attention_layernorm",
            "post_attention_layernorm": "feedforward_layernorm",
        },
        arrays={f"mlp.act_fn.{number}": f"xielu.{number}" for number in _NUMBERS},
    ),
)
