"""Qwen3: Llama with normalized queries and keys ("Qwen3 Technical Report", 2025)."""

from __future__ import annotations

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.layers import MLP, Block, DecoderModel, NormedAttention
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.qwen2 import qwen_fields


class Qwen3(DecoderModel):
    """Blocks with normalized heads."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [Block(config, NormedAttention(config), MLP(config)) for _ in range(config.layers)]
        super().__init__(config, blocks)


ARCHITECTURE = Architecture(
    name="qwen3",
    config=DecoderConfig,
    model_types=("qwen3",),
    read_config_json=lambda data: DecoderConfig(**qwen_fields(data)),
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Qwen3,
    tensors=TensorNames(),
)
