"""PLM: latent vectors in place of keys and values, and an MLP with squared ReLU.

Source: "PLM: Efficient Peripheral Language Models" (2025), and the model `plm` of llama.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.latent_attention import (
    KEYS_AND_VALUES,
    LATENT_GGUF_NAMES,
    LatentAttention,
    LatentConfig,
    latent_fields,
)
from hearthd.models.decoder.layers import Block, DecoderModel, rope_table
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.families.nemotron_h import SquaredMLP

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


class Plm(DecoderModel):
    """Blocks with latent vectors and squared ReLU."""

    config: LatentConfig

    def __init__(self, config: LatentConfig) -> None:
        blocks = [
            Block(config, LatentAttention(config), SquaredMLP(config)) for _ in range(config.layers)
        ]
        super().__init__(config, blocks)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


def from_hugging_face(data: ConfigJson) -> LatentConfig:
    """Read config.json."""
    return LatentConfig(**latent_fields(data, activation="relu2"))


def from_gguf(data: GgufMetadata) -> LatentConfig:
    """Read GGUF metadata."""
    rotary, latent = data.size("rope.dimension_count"), data.size("attention.kv_lora_rank")
    value_width = data.size("attention.value_length")
    fields: dict[str, Any] = from_gguf_metadata(data, rope_width=rotary, value_width=value_width)
    width = fields["head_dim"]
    latent_vectors = {
        "kv_heads": 1,
        "head_dim": latent + rotary,
        "query_rank": None,
        "latent": latent,
        "rotary_width": rotary,
        "key_width": width - rotary,
        "value_width": value_width,
        "attention_scale": width**-0.5,
        "turns_neighbors": True,
    }
    return LatentConfig(**fields | latent_vectors)


ARCHITECTURE = Architecture(
    name="plm",
    config=LatentConfig,
    model_types=("plm",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Plm,
    tensors=TensorNames(gguf={**GGUF_NAMES, **LATENT_GGUF_NAMES}, grouped=(KEYS_AND_VALUES,)),
)
