"""The tower of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.decoder.config.config_json import PROCESSOR
from hearthd.models.towers.tower_config import GridConfig
from tests.models.families.gguf_files import is_of_tower, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TYPES = {
    "gemma3-images": "gemma3", "smolvlm": "idefics3", "qwen35-images": "qwen3vl_merger",
    "qwen35moe-images": "qwen3vl_merger",
}  # fmt: skip
# What the converter calls parts of Qwen's tower otherwise than the gguf package does.
_MERGER = {"linear_fc1": "mm.0", "linear_fc2": "mm.2", "norm": "v.post_ln"}
_USUAL = {"gemma3-images": 4, "smolvlm": None}


def write_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(TYPES[architecture])
    writer.add_vision_projection_dim(config.hidden)
    is_grid = isinstance(config, GridConfig)
    size = config.table_side * config.patch_size if is_grid else config.image_size
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(config.patch_size)
    writer.add_vision_embedding_length(config.tower_hidden)
    writer.add_vision_feed_forward_length(config.tower_ffn)
    writer.add_vision_block_count(config.tower_layers)
    writer.add_vision_head_count(config.tower_heads)
    writer.add_vision_attention_layernorm_eps(1e-6 if is_grid else config.tower_norm_eps)
    writer.add_vision_use_gelu(True)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    source = SafetensorsSource(folder)
    if is_grid:
        writer.add_vision_spatial_merge_size(config.merged_patches)
        writer.add_vision_is_deepstack_layers([False] * config.tower_layers)
        for name, values in _grid_tensors(source, config.tower_layers):
            writer.add_tensor(name, values)
        return written(writer, path)
    joined: int = getattr(config, "joined_patches", None) or config.pooled_patches
    if joined != _USUAL[architecture]:
        writer.add_vision_projector_scale_factor(joined)
    if architecture == "smolvlm":
        settings: Any = source.metadata().get(PROCESSOR, {})
        edge = settings.get("size", {}).get("longest_edge", config.image_size)
        writer.add_vision_preproc_image_size(edge)
    for name, values in _tensors(source, config.tower_layers):
        writer.add_tensor(name, values)
    return written(writer, path)


def _grid_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        values, inner = source.read(name), name.removeprefix("model.")
        module, _, suffix = inner.rpartition(".")
        if module == "visual.patch_embed.proj" and suffix == "weight":
            yield "v.patch_embd.weight", np.ascontiguousarray(values[:, :, 0])
            yield "v.patch_embd.weight.1", np.ascontiguousarray(values[:, :, 1])
        elif module.startswith("visual.merger."):
            yield f"{_MERGER[module.removeprefix('visual.merger.')]}.{suffix}", values
        else:
            stored = names.get_name(inner, (".weight", ".bias"))
            assert stored is not None, name
            yield stored, values


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
