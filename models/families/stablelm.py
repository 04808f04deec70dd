"""StableLM 2 and StableLM Zephyr: Llama with LayerNorm; the first columns of each head turn.

Source: "Stable LM 2 1.6B Technical Report" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.partial_rope import (
    LayerNormModel,
    PartialRopeConfig,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARE = 0.25  # of the columns of a head that turn


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json. StableLM 2 12B, which normalizes heads, is not supported."""
    data.rename(layer_norm_eps="rms_norm_eps", norm_eps="rms_norm_eps")
    data.assume(rms_norm_eps=1e-5)
    data.fixed(qk_layernorm=False, use_parallel_residual=False)
    data.ignore("hidden_dropout")
    fields = partial_fields(data, _SHARE)
    return PartialRopeConfig(
        **fields | {"attention_bias": data.flag("use_qkv_bias", default=False)}
    )


def from_gguf(data: GgufMetadata) -> PartialRopeConfig:
    """Read GGUF metadata. As in llama.cpp, the norm of an MLP says whether residuals are parallel:
    its converter writes the key `use_parallel_residual` as true where a folder has none."""
    data.ignore("use_parallel_residual")
    return PartialRopeConfig(**partial_fields_from_gguf(data, _SHARE))


ARCHITECTURE = Architecture(
    name="stablelm",
    config=PartialRopeConfig,
    model_types=("stablelm", "stablelm_epoch"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=LayerNormModel,
    tensors=TensorNames(),
)
