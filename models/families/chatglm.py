"""GLM-4 (2024) and GLM-Edge: Llama with fused projections, where part of each head turns.

Source: "ChatGLM" (2024) and the model `glm` of transformers.
"""

from __future__ import annotations

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import Attention, Block, DecoderModel, FusedMLP
from hearthd.models.decoder.tensor_names import JOINED_HEADS, QUERIES_AND_KEYS, TensorNames
from hearthd.models.families.glm4 import from_gguf, from_hugging_face


class Glm(DecoderModel):
    """Llama's blocks with one projection to gate and up."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [Block(config, Attention(config), FusedMLP(config)) for _ in range(config.layers)]
        super().__init__(config, blocks)


ARCHITECTURE = Architecture(
    name="chatglm",
    config=DecoderConfig,
    model_types=("glm",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS, folder_interleaved=True, grouped=(JOINED_HEADS,)
    ),
)
