"""Qwen 2 and 2.5: Llama with biases in attention ("Qwen2 Technical Report", 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.rope_scaling import Rope


def qwen_fields(
    data: ConfigJson, read_rope: Callable[[ConfigJson, int, int], Rope] = ConfigJson.rope
) -> dict[str, Any]:
    """Read config.json of Qwen 2 or 3, in which the layers from `max_window_layers` may slide.

    For `read_rope` see `from_config_json`.
    """
    fields = from_config_json(data, read_rope)
    slides = data.flag("use_sliding_window", default=False)
    first = data.count("max_window_layers", default=0)
    usual = [slides and layer >= first for layer in range(fields["layers"])]
    return fields | {"windows": windows_by_type(data, usual)}


ARCHITECTURE = Architecture(
    name="qwen2",
    config=DecoderConfig,
    model_types=("qwen2",),
    read_config_json=lambda data: DecoderConfig(**qwen_fields(data) | {"attention_bias": True}),
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(),
)
