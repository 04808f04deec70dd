"""Command R and Aya: attention and MLP side by side, after one norm.

Source: the model `cohere` of transformers (Cohere, 2024); the blocks are GPT-J's (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, DecoderModel, ParallelBlock
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `logit_scale` multiplies logits."""

    logit_scale: float


def norm_without_bias(width: int, eps: float) -> nn.LayerNorm:
    """A norm that subtracts the mean."""
    return nn.LayerNorm(width, eps, bias=False)


class Cohere(DecoderModel):
    """Blocks of this kind, and a scale of logits."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            ParallelBlock(config, Attention(config), MLP(config), norm_without_bias)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = norm_without_bias(config.hidden, config.norm_eps)

    @override
    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        return super().logits(x * self.config.logit_scale)


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` but `windows`; raises ConfigError."""
    data.rename(layer_norm_eps="rms_norm_eps")
    # The defaults of transformers' CohereConfig: files leave out what equals them.
    data.assume(tie_word_embeddings=True, rms_norm_eps=1e-5)
    fields = from_config_json(data)
    return {
        **fields,
        "max_context": data.size("model_max_length", default=fields["max_context"]),
        "logit_scale": data.number("logit_scale", default=0.0625),
    }


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Command R+, whose heads are normalized, is not supported."""
    data.fixed(use_qk_norm=False)
    return Config(**fields_from_hugging_face(data))


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` but `windows`, from GGUF metadata; raises ConfigError."""
    data.epsilon("layer_norm")
    return {**from_gguf_metadata(data), "logit_scale": data.number("logit_scale")}


ARCHITECTURE = Architecture(
    name="command-r",
    config=Config,
    model_types=("cohere",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Cohere,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS, folder_interleaved=True),
)
