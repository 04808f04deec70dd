"""A Qwen2.5-VL of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.families.qwen25vl_images import ARCHITECTURE, Config
from tests.baker.small_qwen35 import MAX_PIXELS, MERGED, MIN_PIXELS, PATCH, SPECIAL, TEMPLATE, token
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e4, tied=False, attention_bias=True,
    rope_sections=(8, 12, 12), patch_size=PATCH, merged_patches=MERGED, window_squares=2,
    attends_to_all=(False, True), tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2,
)  # fmt: skip
_HEADS = ("q_proj", "k_proj", "v_proj")


def small_qwen25vl(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=_published, shape=_shape)
    for name in [name for name in tensors if name.startswith("visual.") and ".q_proj." in name]:
        parts = [tensors.pop(name.replace("q_proj", head)) for head in _HEADS]
        tensors[name.replace("q_proj", "attn.qkv")] = np.concatenate(parts)
    write_model(folder, tensors, _config(), processor(), TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    return name.removeprefix("model.") if name.startswith("model.visual.") else name


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, 2, PATCH, PATCH)
    return shape


def _config() -> dict[str, Any]:
    """As in the published files, without a section for the text model."""
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "vision_token_id": token("<|image_pad|>"),
        "eos_token_id": token("<|im_end|>"),
        **text_sizes(CONFIG),
        "hidden_act": "silu",
        "rms_norm_eps": CONFIG.norm_eps,
        "rope_theta": CONFIG.rope_base,
        "rope_scaling": {"type": "mrope", "mrope_section": list(CONFIG.rope_sections)},
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vision_config": vision_config(CONFIG),
    }


def vision_config(config: Config) -> dict[str, Any]:
    """The section of config.json for the tower."""
    return {
        "model_type": "qwen2_5_vl",
        "depth": config.tower_layers,
        "hidden_act": "silu",
        "hidden_size": config.tower_hidden,
        "intermediate_size": config.tower_ffn,
        "num_heads": config.tower_heads,
        "in_chans": 3,
        "out_hidden_size": config.hidden,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "spatial_patch_size": PATCH,
        "window_size": config.window_squares * PATCH * MERGED,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
        "temporal_patch_size": 2,
    }


def processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGED,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "processor_class": "Qwen2_5_VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    }
