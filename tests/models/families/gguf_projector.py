"""The tower of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.decoder.config.config_json import PROCESSOR
from hearthd.models.families.gemma4_sound import Config as SoundConfig
from hearthd.models.families.gemma4_unified import Config as UnifiedConfig
from hearthd.models.families.glm4v_images import VisionConfig as GlmConfig
from hearthd.models.towers.siglip import CLIP, HALF, IMAGENET
from tests.models.families.gguf_files import is_of_tower, neighbors, written
from tests.models.families.gguf_llava import add_llava, llava_tensors
from tests.models.families.gguf_whisper import add_whisper, as_in_convolutions, sinusoids
from tests.models.families.internvl_names import own_name
from tests.models.families.llava_cases import PIXTRAL_TOWER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TYPES = {
    "gemma3-images": "gemma3", "smolvlm": "idefics3", "qwen35-images": "qwen3vl_merger",
    "qwen35moe-images": "qwen3vl_merger", "lfm2-vl": "lfm2", "qwen3vl-images": "qwen3vl_merger",
    "qwen3vlmoe-images": "qwen3vl_merger",
    "gemma4-images": "gemma4v", "gemma4-moe-images": "gemma4v", "gemma4-sound": "gemma4v",
    "gemma4-unified": "gemma4uv", "mistral3-images": "pixtral",
    "pixtral": "pixtral", "llava": "mlp", "llava-next": "mlp", "granite-vision": "mlp",
    "lightonocr": "lightonocr",
    "internvl": "internvl", "internvl35": "internvl", "qwen25vl-images": "qwen2.5vl_merger",
    "qwen2vl-images": "qwen2vl_merger", "glm4v-images": "glm4v", "glm4vmoe-images": "glm4v",
    "glm-ocr": "glm4v", "paddleocr-vl": "paddleocr",
    "qwen25omni": "qwen2.5o",
    "minicpmv": "resampler", "minicpmv4": "resampler", "minicpmv45": "resampler",
}  # fmt: skip
PADDLE_PIXELS = 188 * 28**2, 3600 * 28**2  # as published
_SILU = (
    "glm4v",
    "lightonocr",
    "pixtral",
    "qwen2.5o",
    "qwen2.5vl_merger",
)  # types whose towers have this activation, and no GELU
_PIXELS = {
    "glm4v": CLIP,
    "internvl": IMAGENET,
    "lightonocr": CLIP,
    "mlp": CLIP,
    "paddleocr": CLIP,
    "pixtral": CLIP,
    "qwen2.5o": CLIP,
    "qwen2.5vl_merger": CLIP,
    "qwen2vl_merger": CLIP,
}
# What the converter calls parts of Qwen's tower otherwise than the gguf package does.
_MERGER = {
    "linear_fc1": "mm.0", "linear_fc2": "mm.2", "norm": "v.post_ln", "mlp.0": "mm.0",
    "mlp.2": "mm.2", "ln_q": "v.post_ln",
}  # fmt: skip
_USUAL = 4  # pooled patches of a side in Gemma 3


def write_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    if (type_ := TYPES[architecture]).startswith("gemma4"):  # beside a type of sound
        writer.add_clip_vision_projector_type(type_)
    else:
        writer.add_clip_projector_type(type_)
        if type_ in _SILU:
            writer.add_vision_use_silu(True)
        elif type_ != "qwen2vl_merger":
            writer.add_vision_use_gelu(type_ != "mlp")
    writer.add_vision_projection_dim(config.hidden)
    source = SafetensorsSource(folder)
    add, tensors = _WRITERS.get(type_, (_add_square, _tensors))
    writer.add_vision_patch_size(config.patch_size)
    if isinstance(config, UnifiedConfig):
        layers, sizes = 0, (config.square_width, 0, 0)
    else:
        layers, sizes = (
            config.tower_layers,
            (config.tower_hidden, config.tower_ffn, config.tower_heads),
        )
    hidden, ffn, heads = sizes
    writer.add_vision_embedding_length(hidden)
    # GLM-4.1V's converter writes the width of the merger.
    writer.add_vision_feed_forward_length(
        config.projector_ffn if isinstance(config, GlmConfig) else ffn
    )
    writer.add_vision_block_count(getattr(config, "layers_read", layers))
    writer.add_vision_head_count(heads)
    # Gemma 4 normalizes pixels itself.
    mean, std = ((0.0,) * 3, (1.0,) * 3) if type_.startswith("gemma4") else _PIXELS.get(type_, HALF)
    writer.add_vision_image_mean([*mean])
    writer.add_vision_image_std([*std])
    add(writer, config)
    if architecture == "smolvlm":
        settings: Any = source.metadata().get(PROCESSOR, {})
        edge = settings.get("size", {}).get("longest_edge", config.image_size)
        writer.add_vision_preproc_image_size(edge)
    for name, values in tensors(source, layers):
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
    stacked = getattr(config, "is_stacked", (False,) * config.tower_layers)
    writer.add_vision_is_deepstack_layers([*stacked])


def _add_glm(writer: gguf.GGUFWriter, config: Any) -> None:
    side = getattr(config, "table_side", 7)  # GLM-OCR has no table, and the key
    writer.add_vision_image_size(side * config.patch_size)
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)


def _add_paddle(writer: gguf.GGUFWriter, _: Any) -> None:
    smallest, largest = PADDLE_PIXELS
    writer.add_vision_image_size(math.isqrt(largest))
    writer.add_vision_min_pixels(smallest)
    writer.add_vision_max_pixels(largest)
    writer.add_vision_attention_layernorm_eps(1e-6)


def _add_minicpm(writer: gguf.GGUFWriter, config: Any) -> None:
    """As llama.cpp's script for MiniCPM-V, which its converter does not know."""
    writer.add_vision_image_size(config.image_size)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_bool("clip.has_text_encoder", False)
    writer.add_bool("clip.has_minicpmv_projector", True)
    writer.add_int32("clip.minicpmv_version", 3)
    writer.add_uint32("clip.minicpmv_query_num", config.queries)


def _add_lfm2(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(256)  # always
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    writer.add_vision_projector_scale_factor(config.merged_patches)


def _add_pixtral(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(config.longest_edge)
    writer.add_vision_attention_layernorm_eps(1e-5)
    if config.has_merger:
        writer.add_vision_spatial_merge_size(config.merged_patches)


def _add_qwen25(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(560)  # always
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_n_wa_pattern(config.attends_to_all.index(True) + 1)


def _add_omni(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_qwen25(writer, config)
    add_whisper(writer, config)


def _add_qwen2(writer: gguf.GGUFWriter, _: Any) -> None:
    writer.add_vision_image_size(560)  # always
    writer.add_vision_attention_layernorm_eps(1e-6)


def _add_gemma4(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vision_image_size(224)  # always
    eps = config.square_eps if isinstance(config, UnifiedConfig) else config.tower_norm_eps
    writer.add_vision_attention_layernorm_eps(eps)
    if isinstance(config, SoundConfig):
        sizes = config.sound_hidden, config.sound_layers, config.sound_heads
        _add_gemma4_sound(writer, "gemma4a", config.hidden, *sizes)
    elif isinstance(config, UnifiedConfig):
        assert config.sound_frame is not None, "a folder with both"
        _add_gemma4_sound(writer, "gemma4ua", config.hidden, config.sound_frame, 0, 0)


def _add_gemma4_sound(
    writer: gguf.GGUFWriter, type_: str, hidden: int, width: int, layers: int, heads: int
) -> None:
    writer.add_clip_has_audio_encoder(True)
    writer.add_clip_audio_projector_type(type_)
    writer.add_audio_projection_dim(hidden)
    writer.add_audio_embedding_length(width)
    writer.add_audio_feed_forward_length(4 * width)
    writer.add_audio_block_count(layers)
    writer.add_audio_head_count(heads)
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


def _minicpm_tensors(source: SafetensorsSource, _: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """The first matrix of an MLP is called "down"."""
    for name in filter(is_of_tower, source.names()):
        values, stored = source.read(name), name
        for part, short in _OF_MINICPM.items():
            stored = stored.replace(part, short)
        if "attn.in_" in stored:
            for part, rows in zip("qkv", np.split(values, 3), strict=True):
                yield stored.replace("in_", f"{part}."), np.ascontiguousarray(rows)
        elif stored == "resampler.proj":
            yield f"{stored}.weight", np.ascontiguousarray(values.T)
            yield "resampler.pos_embed_k", np.zeros((70, 70, len(values)), np.float32)
        else:
            yield stored, values


_OF_MINICPM = {
    "vpm.": "v.", "encoder.layers": "blk", "embeddings.": "", "in_proj_": "in_",
    "v_proj.": "v.", "q_proj.": "q.", "k_proj.": "k.", "out_proj.": "out.",
    "self_attn.": "attn_", "layer_norm": "ln", "layernorm": "ln", "mlp.fc1": "ffn_down",
    "mlp.fc2": "ffn_up", "embedding": "embd",
}  # fmt: skip


def _pixtral_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, values in _tensors(source, layers):
        is_turned = name.endswith(("attn_q.weight", "attn_k.weight"))
        yield (
            name,
            neighbors(values, PIXTRAL_TOWER["vision_config"]["head_dim"]) if is_turned else values,
        )


def _intern_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        usual = own_name(name)
        usual = usual.replace("vision_model.", "vision_tower.vision_model.")
        if usual.endswith((".ls1", ".ls2", "position_embedding")):
            usual += ".weight"
        stored = names.get_name(usual, (".weight", ".bias"))
        assert stored is not None, name
        yield stored, source.read(name)


def _squares(source: SafetensorsSource, _: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in filter(is_of_tower, source.names()):
        values, part = source.read(name), name.removeprefix("model.")
        if "patch_dense.weight" in part or "patch_ln1" in part:
            values = channels_first(np.atleast_2d(values)).reshape(values.shape)
        if "pos_embedding" in part:
            values = np.ascontiguousarray(values.swapaxes(0, 1))
        yield _OF_SQUARES[part.rpartition(".")[0]].format(part.rpartition(".")[2]), values


_OF_SQUARES = {
    "vision_embedder.patch_ln1": "v.patch_norm.1.{}",
    "vision_embedder.patch_ln2": "v.patch_norm.2.{}",
    "vision_embedder.pos_norm": "v.patch_norm.3.{}",
    "vision_embedder.patch_dense": "v.patch_embd.{}",
    "vision_embedder": "v.position_embd.weight",
    "embed_vision.embedding_projection": "mm.input_projection.{}",
    "embed_audio.embedding_projection": "mm.a.input_projection.{}",
}


def _paddle_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        stored = names.get_name(name.replace("visual.", "model."), (".weight", ".bias"))
        assert stored is not None, name
        yield stored, source.read(name)


def _qwen25_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, values in _qwen_tensors(source, layers):
        parts = np.split(values, 3) if "attn_qkv" in name else [values]
        for part, rows in zip("qkv", parts, strict=False):
            yield name.replace("attn_qkv", f"attn_{part}"), np.ascontiguousarray(rows)


def _omni_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    yield from _qwen25_tensors(source, layers)
    config: Any = source.metadata()["audio_config"]
    yield "a.position_embd.weight", sinusoids(1500, config["d_model"])


def _qwen_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        values, inner = source.read(name), name.removeprefix("model.")
        if "visual.merger." in inner and names.get_name(inner, (".weight", ".bias")):
            yield str(names.get_name(inner, (".weight", ".bias"))), values
            continue
        module, _, suffix = inner.rpartition(".")
        if module == "visual.patch_embed.proj" and suffix == "weight":
            yield "v.patch_embd.weight", np.ascontiguousarray(values[:, :, 0])
            yield "v.patch_embd.weight.1", np.ascontiguousarray(values[:, :, 1])
        elif module.startswith("visual.deepstack_merger_list."):
            _, _, number, part = module.split(".")
            vision: Any = source.metadata()["vision_config"]
            layer = vision["deepstack_visual_indexes"][int(number)]
            yield f"v.deepstack.{layer}.{part.removeprefix('linear_')}.{suffix}", values
        elif module.startswith("visual.merger."):
            yield f"{_MERGER[module.removeprefix('visual.merger.')]}.{suffix}", values
        elif "audio_bos_eos_token" not in name:
            stored = names.get_name(inner, (".weight", ".bias"))
            assert stored is not None, name
            yield stored, as_in_convolutions(name, values)


def _tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name in filter(is_of_tower, source.names()):
        values = source.read(name)
        if "soft_emb_norm" in name:
            values = values + np.float32(1)
        name = name.replace("model.vision_encoder.", "model.vision_tower.")
        name = name.replace("vision_projection", "multi_modal_projector")
        usual = name.removeprefix("model.") if "multi_modal" in name else name
        if "vision_tower" in name and "vision_model" not in name:
            usual = f"vision_tower.vision_model.{name.partition('vision_tower.')[2]}"
        found = (
            names.get_name(one.replace("_weight", ".weight"), (".weight", ".bias"))
            for one in (usual, name.removeprefix("model."))
        )
        stored = next(filter(None, found), None)
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
    "qwen2vl_merger": (_add_qwen2, _qwen25_tensors),
    "qwen2.5o": (_add_omni, _omni_tensors),
    "qwen2.5vl_merger": (_add_qwen25, _qwen25_tensors),
    "internvl": (_add_square, _intern_tensors),
    "mlp": (add_llava, llava_tensors),
    "pixtral": (_add_pixtral, _pixtral_tensors),
    "lightonocr": (_add_pixtral, _pixtral_tensors),
    "paddleocr": (_add_paddle, _paddle_tensors),
    "qwen3vl_merger": (_add_qwen, _qwen_tensors),
    "lfm2": (_add_lfm2, _tensors),
    "glm4v": (_add_glm, _qwen_tensors),
    "resampler": (_add_minicpm, _minicpm_tensors),
    "gemma4v": (_add_gemma4, _gemma4_tensors),
    "gemma4uv": (_add_gemma4, _squares),
}
