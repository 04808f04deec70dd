"""Mellum 2: Qwen3-MoE with windows in most layers, whose rotary positions have a base of their own.

Source: the model `mellum` of transformers (JetBrains, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    local_rope_base,
    windows_by_type,
)
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.families import olmo2
from hearthd.models.families.qwen3moe import Qwen3Moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, olmo2.Config):
    """The shape of a model."""


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. The layer that predicts a further token is not read."""
    data.ignore("num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types")
    fields = from_config_json(data, lambda data, *shape: data.rope(*shape, FULL))
    layers, shape = fields["layers"], (fields["head_dim"], fields["max_context"])
    data.fixed(mlp_layer_types=["sparse"] * layers)
    windows = windows_by_type(data, [False] * layers)
    base = local_rope_base(data, *shape)
    fields |= {"windows": windows, "local_rope_base": base if windows else None}
    return Config(**experts_from_config_json(data, fields))


ARCHITECTURE = Architecture(
    name="mellum",
    config=Config,
    model_types=("mellum",),
    read_config_json=from_hugging_face,
    # In llama.cpp the scores of a token's experts are normalized.
    read_gguf=lambda data: Config(
        **experts_from_gguf(data, olmo2.fields_from_gguf(data)), normalized=True
    ),
    model=Qwen3Moe,
    tensors=EXPERT_NAMES,
)
