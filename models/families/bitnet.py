"""BitNet b1.58 2B4T: Llama with a norm before the last matrix of attention and of the MLP.

Source: "BitNet b1.58 2B4T Technical Report" (2025). Weights are -1, 0 or 1 times a scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_config_json
from hearthd.models.decoder.layers import MLP, Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


class NormedOutput(Attention):
    """Attention whose result is normalized before the last matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.attn_sub_norm = nn.RMSNorm(config.heads * config.head_dim, config.norm_eps)

    @override
    def output(self, mixed: Tensor) -> Tensor:
        """(N, H D) -> (N, E)."""
        return super().output(self.attn_sub_norm(mixed))


class NormedMLP(MLP):
    """down(norm(relu(gate(x))^2 * up(x)))."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config, f.squared_relu)
        self.ffn_sub_norm = nn.RMSNorm(config.ffn, config.norm_eps)

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        gated = self.activation(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.ffn_sub_norm(gated))


class BitNet(DecoderModel):
    """Llama's blocks with two more norms."""

    def __init__(self, config: DecoderConfig) -> None:
        layers = range(config.layers)
        super().__init__(
            config, [Block(config, NormedOutput(config), NormedMLP(config)) for _ in layers]
        )


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.assume(rope_theta=500_000.0)
    return DecoderConfig(**from_config_json(data, activation="relu2"))


def from_gguf(_: GgufMetadata) -> DecoderConfig:
    """Raises ConfigError: files do not say the activation, and llama.cpp computes SiLU."""
    raise ConfigError(
        "GGUF files of BitNet do not say its activation: bake the Hugging Face folder"
    )


ARCHITECTURE = Architecture(
    name="bitnet",
    config=DecoderConfig,
    model_types=("bitnet",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=BitNet,
    tensors=TensorNames(),
)
