"""The tower of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.decoder.config.config_json import PROCESSOR
from tests.models.families.gguf_files import is_of_tower, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TYPES = {"gemma3-images": "gemma3", "smolvlm": "idefics3"}
_USUAL = {"gemma3-images": 4, "smolvlm": None}


def write_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(TYPES[architecture])
    writer.add_vision_projection_dim(config.hidden)
    writer.add_vision_image_size(config.image_size)
    writer.add_vision_patch_size(config.patch_size)
    writer.add_vision_embedding_length(config.tower_hidden)
    writer.add_vision_feed_forward_length(config.tower_ffn)
    writer.add_vision_block_count(config.tower_layers)
    writer.add_vision_head_count(config.tower_heads)
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    writer.add_vision_use_gelu(True)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    joined: int = getattr(config, "joined_patches", None) or config.pooled_patches
    if joined != _USUAL[architecture]:
        writer.add_vision_projector_scale_factor(joined)
    source = SafetensorsSource(folder)
    if architecture == "smolvlm":
        settings: Any = source.metadata().get(PROCESSOR, {})
        edge = settings.get("size", {}).get("longest_edge", config.image_size)
        writer.add_vision_preproc_image_size(edge)
    for name, values in _tensors(source, config.tower_layers):
        writer.add_tensor(name, values)
    return written(writer, path)


def _tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        values = source.read(name)
        if "soft_emb_norm" in name:
            values = values + np.float32(1)
        usual = name.removeprefix("model.") if "multi_modal" in name else name
        if "vision_tower" in name and "vision_model" not in name:
            usual = f"vision_tower.vision_model.{name.partition('vision_tower.')[2]}"
        stored = names.get_name(usual.replace("_weight", ".weight"), (".weight", ".bias"))
        assert stored is not None, name
        yield stored, values.astype(np.float16) if "input_projection" in stored else values
