"""GLM-4 (0414): blocks with norms before and after, of whose heads the first half turns.

Source: "ChatGLM" (2024) and the model `glm4` of transformers (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.config.rope_scaling import first_columns
from hearthd.models.decoder.layers import Attention, DecoderModel, FusedMLP
from hearthd.models.decoder.tensor_names import (
    GGUF_NAMES_WITH_NORMS_AFTER,
    QUERIES_AND_KEYS,
    TensorNames,
)
from hearthd.models.families.gemma3 import GemmaBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope

_SHARE = 0.5  # of the columns of a head that turn


class Glm4(DecoderModel):
    """Blocks with norms before and after, and one projection to gate and up."""

    def __init__(self, config: DecoderConfig) -> None:
        attention = (Attention(config) for _ in range(config.layers))
        super().__init__(
            config, [GemmaBlock(config, layer, FusedMLP(config)) for layer in attention]
        )


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json. The projection of attention's result has no bias."""
    data.assume(attention_bias=True)
    return DecoderConfig(**from_config_json(data, _rope) | {"output_bias": False})


def _rope(data: ConfigJson, head_dim: int, _: int) -> Rope:
    """The rotary positions: neighbors in the first columns turn, the others do not."""
    section, base = data.rope_section()
    share = data.number("partial_rotary_factor", default=_SHARE)
    share = section.number("partial_rotary_factor", default=share)
    kind = section.text("rope_type", default=section.text("type", default="default"))
    if share > 1 or kind != "default":
        raise ConfigError(
            f"rope_parameters: got {kind!r:.80} for {share} of a head, supported is default for "
            "at most 1"
        )
    return first_columns(base, int(head_dim * share), head_dim)


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata."""
    head_dim = data.size("attention.key_length", default=None)
    head_dim = head_dim or data.size("embedding_length") // data.size("attention.head_count")
    width = data.size("rope.dimension_count", default=int(head_dim * _SHARE))
    fields = from_gguf_metadata(data, rope_width=width)
    rope = first_columns(fields["rope_base"], width, head_dim)
    return DecoderConfig(**fields | rope.fields)


ARCHITECTURE = Architecture(
    name="glm4",
    config=DecoderConfig,
    model_types=("glm4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4,
    tensors=TensorNames(
        gguf=GGUF_NAMES_WITH_NORMS_AFTER,
        interleaved=QUERIES_AND_KEYS,
        folder_interleaved=True,
        folder={
            "post_attention_layernorm": "post_self_attn_layernorm",
            "pre_feedforward_layernorm": "post_attention_layernorm",
            "post_feedforward_layernorm": "post_mlp_layernorm",
        },
    ),
)
