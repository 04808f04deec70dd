"""MiniCPM3: latent vectors in place of keys and values, and the multipliers of MiniCPM.

Source: "MiniCPM" (2024) and the model `minicpm3` of transformers (2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.config.long_rope import (
    LongRopeConfig,
    long_fields,
    long_fields_from_gguf,
    read_rope,
)
from hearthd.models.decoder.latent_attention import (
    KEYS_AND_VALUES,
    LATENT_GGUF_NAMES,
    LatentAttention,
    LatentConfig,
    latent_fields,
)
from hearthd.models.decoder.layers import rope_table
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.families import granite
from hearthd.models.families.granite import Granite, GraniteBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

# Of MiniCPM3-4B: GGUF files do not say them.
_SCALE_EMB, _SCALE_DEPTH, _DIM_MODEL_BASE = 12.0, 1.4, 256


@dataclass(frozen=True, kw_only=True)
class Config(LatentConfig, LongRopeConfig, granite.Config):
    """The shape of a model."""


class MiniCpm3(Granite):
    """Granite's multipliers around attention over latent vectors."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = (GraniteBlock(config, mixer=LatentAttention(config)) for _ in range(config.layers))
        super().__init__(config, list(blocks))

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


def multipliers(
    embedding: float, depth: float, base: int, *, layers: int, hidden: int
) -> dict[str, float]:
    """Granite's multipliers from MiniCPM's; `depth` is shared by the layers."""
    return {
        "embedding_scale": embedding,
        "residual_scale": depth / math.sqrt(layers),
        "logit_scale": hidden / base,
    }


def with_multipliers(data: ConfigJson, fields: dict[str, Any], rotary_width: int) -> dict[str, Any]:
    """Fields with Granite's multipliers and LongRoPE's, from config.json."""
    scales = multipliers(
        data.number("scale_emb", default=_SCALE_EMB),
        data.number("scale_depth", default=_SCALE_DEPTH),
        data.size("dim_model_base", default=_DIM_MODEL_BASE),
        layers=fields["layers"],
        hidden=fields["hidden"],
    )
    context = fields["max_context"]
    return fields | scales | long_fields(long_rope(data, rotary_width, context), context)


def long_rope(data: ConfigJson, width: int, max_context: int) -> Rope:
    """The rotary positions of `width` columns in config.json; raises ConfigError."""
    return read_rope(data, *data.rope_section(), width, max_context)


def scales_from_gguf(data: GgufMetadata, fields: dict[str, Any]) -> dict[str, float]:
    """Granite's multipliers; where a file lacks them, the first models' values."""
    usual = multipliers(
        _SCALE_EMB,
        _SCALE_DEPTH,
        _DIM_MODEL_BASE,
        layers=fields["layers"],
        hidden=fields["hidden"],
    )
    names = ("embedding_scale", "residual_scale", "logit_scale")
    return {name: data.number(name, default=usual[name]) for name in names}


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    # The defaults of transformers' MiniCPM3Config: files leave out what equals them.
    data.assume(tie_word_embeddings=True, rms_norm_eps=1e-5)
    data.assume(v_head_dim=data.size("hidden_size") // data.size("num_attention_heads"))
    fields = latent_fields(data, long_rope)
    fields = with_multipliers(data, fields, fields["rotary_width"])
    return Config(**fields | {"turns_neighbors": False})


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    rotary, latent = data.size("rope.dimension_count"), data.size("attention.kv_lora_rank")
    fields: dict[str, Any] = from_gguf_metadata(data, rope_width=rotary)
    width = fields["head_dim"]
    rows = data.rows("blk.0.attn_kv_b.weight") // fields["heads"]
    latent_vectors = {
        "kv_heads": 1,
        "head_dim": latent + rotary,
        "query_rank": data.size("attention.q_lora_rank", default=None),
        "latent": latent,
        "rotary_width": rotary,
        "key_width": width - rotary,
        "value_width": rows - (width - rotary),
        "attention_scale": width**-0.5,
        "turns_neighbors": False,
    }
    tables = long_fields_from_gguf(data, rotary, fields["max_context"])
    return Config(**fields | scales_from_gguf(data, fields) | latent_vectors | tables)


ARCHITECTURE = Architecture(
    name="minicpm3",
    config=Config,
    model_types=("minicpm3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=MiniCpm3,
    tensors=TensorNames(gguf={**GGUF_NAMES, **LATENT_GGUF_NAMES}, grouped=(KEYS_AND_VALUES,)),
)
