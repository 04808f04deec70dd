"""The tower of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.decoder.config.config_json import PROCESSOR
from hearthd.models.families.gemma4_sound import Config as SoundConfig
from tests.models.families.gguf_files import is_of_tower, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TYPES = {
    "gemma3-images": "gemma3", "smolvlm": "idefics3", "qwen35-images": "qwen3vl_merger",
    "qwen35moe-images": "qwen3vl_merger", "lfm2-vl": "lfm2",
    "gemma4-images": "gemma4v", "gemma4-moe-images": "gemma4v", "gemma4-sound": "gemma4v",
}  # fmt: skip
# What the converter calls parts of Qwen's tower otherwise than the gguf package does.
_MERGER = {"linear_fc1": "mm.0", "linear_fc2": "mm.2", "norm": "v.post_ln"}
_USUAL = 4  # pooled patches of a side in Gemma 3


def write_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    if (type_ := TYPES[architecture]) == "gemma4v":  # beside a type of sound
        writer.add_clip_vision_projector_type(type_)
    else:
        writer.add_clip_projector_type(type_)
        writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(config.hidden)
    source = SafetensorsSource(folder)
    add, tensors = _WRITERS.get(type_, (_add_square, _tensors))
    writer.add_vision_patch_size(config.patch_size)
    writer.add_vision_embedding_length(config.tower_hidden)
    writer.add_vision_feed_forward_length(config.tower_ffn)
    writer.add_vision_block_count(config.tower_layers)
    writer.add_vision_head_count(config.tower_heads)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    add(writer, config)
    if architecture == "smolvlm":
        settings: Any = source.metadata().get(PROCESSOR, {})
        edge = settings.get("size", {}).get("longest_edge", config.image_size)
        writer.add_vision_preproc_image_size(edge)
    for name, values in tensors(source, config.tower_layers):
        writer.add_tensor(name, values)
    return written(writer, path)


def _add_square(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(config.image_size)
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    pooled: int | None = getattr(config, "pooled_patches", None)
    if pooled is None:
        writer.add_vision_projector_scale_factor(config.joined_patches)
    elif pooled != _USUAL:
        writer.add_vision_projector_scale_factor(pooled)


def _add_qwen(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(config.table_side * config.patch_size)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_spatial_merge_size(config.merged_patches)
    writer.add_vision_is_deepstack_layers([False] * config.tower_layers)


def _add_lfm2(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(256)  # always
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    writer.add_vision_projector_scale_factor(config.merged_patches)


def _add_gemma4(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(224)  # always
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    if isinstance(config, SoundConfig):
        writer.add_clip_has_audio_encoder(True)
        writer.add_clip_audio_projector_type("gemma4a")
        writer.add_audio_projection_dim(config.hidden)
        writer.add_audio_embedding_length(config.sound_hidden)
        writer.add_audio_feed_forward_length(4 * config.sound_hidden)
        writer.add_audio_block_count(config.sound_layers)
        writer.add_audio_head_count(config.sound_heads)
        writer.add_audio_num_mel_bins(128)  # always
        writer.add_audio_attention_layernorm_eps(1e-6)  # always


def _gemma4_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    ends = (
        ".weight",
        ".bias",
        *(f".{side}_{end}" for side in ("input", "output") for end in ("min", "max")),
    )
    for name in filter(is_of_tower, source.names()):
        values = np.atleast_1d(source.read(name))
        usual = name.replace("model.vision_tower.encoder.", "vision_model.model.")
        usual = usual.replace("model.audio_tower.", "conformer.").replace(".linear.", ".")
        if usual.endswith("per_dim_scale"):
            usual, values = f"{usual}.weight", np.logaddexp(np.float32(0), values)
        if "depthwise_conv1d" in usual:
            values = values.squeeze(1)
        if usual.endswith("input_proj.weight"):
            values = channels_first(values)
        if usual.endswith("position_embedding_table"):
            usual += ".weight"
        stored = names.get_name(usual, ends)
        assert stored is not None, name
        yield stored, values


def _qwen_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
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
        if stored == "v.patch_embd.weight" and values.ndim == 2:
            values = channels_first(values)
        yield stored, values.astype(np.float16) if "input_projection" in stored else values


def channels_first(values: NDArray[Any]) -> NDArray[Any]:
    """Rows of pixels whose channels are side by side, as the weights of a convolution."""
    side = math.isqrt(values.shape[1] // 3)
    convolution = values.reshape(len(values), side, side, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(convolution)


_WRITERS = {
    "qwen3vl_merger": (_add_qwen, _qwen_tensors),
    "lfm2": (_add_lfm2, _tensors),
    "gemma4v": (_add_gemma4, _gemma4_tensors),
}
