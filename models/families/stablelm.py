"""StableLM 2 and StableLM Zephyr: Llama with LayerNorm; the first columns of each head turn.

Source: "Stable LM 2 1.6B Technical Report" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.partial_rope import (
    LayerNormModel,
    PartialRopeConfig,
    partial_rope,
    rotary_width_from_gguf,
    turning_share,
)
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope

_SHARE = 0.25  # of the columns of a head that turn


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json. StableLM 2 12B, which normalizes heads, is not supported."""
    data.rename(layer_norm_eps="rms_norm_eps", norm_eps="rms_norm_eps")
    data.assume(rms_norm_eps=1e-5)
    data.fixed(qk_layernorm=False, use_parallel_residual=False)
    data.ignore("hidden_dropout")
    fields = from_config_json(data, _rope)
    return PartialRopeConfig(
        **fields | {"attention_bias": data.flag("use_qkv_bias", default=False)},
        rotary_width=int(fields["head_dim"] * turning_share(data, _SHARE)),
    )


def _rope(data: ConfigJson, head_dim: int, max_context: int) -> Rope:
    return partial_rope(data, head_dim, max_context, _SHARE)


def from_gguf(data: GgufMetadata) -> PartialRopeConfig:
    """Read GGUF metadata. As in llama.cpp, the norm of an MLP says whether residuals are parallel:
    its converter writes the key `use_parallel_residual` as true where a folder has none."""
    data.ignore("use_parallel_residual")
    width = rotary_width_from_gguf(data, _SHARE)
    return PartialRopeConfig(**from_gguf_metadata(data, rope_width=width), rotary_width=width)


ARCHITECTURE = Architecture(
    name="stablelm",
    config=PartialRopeConfig,
    model_types=("stablelm", "stablelm_epoch"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=LayerNormModel,
    tensors=TensorNames(),
)
