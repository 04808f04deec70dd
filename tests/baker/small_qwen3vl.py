"""A Qwen3-VL of three layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.qwen3vl_images import ARCHITECTURE, Config
from tests.baker.small_qwen35 import (
    MERGED,
    PATCH,
    SPECIAL,
    TEMPLATE,
    processor,
    published,
    token,
)
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(
    layers=3, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e4, tied=False,
    rope_sections=(12, 10, 10), patch_size=PATCH, merged_patches=MERGED, table_side=5,
    is_stacked=(True, True, False), tower_layers=3, tower_hidden=96, tower_ffn=112, tower_heads=2,
)  # fmt: skip


def small_qwen3vl(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=published, shape=_shape)
    write_model(folder, tensors, _config(), processor(), TEMPLATE, SPECIAL)
    return folder


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    return (shape[0], 3, 2, PATCH, PATCH) if name == "tower.patch_embedding.weight" else shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "eos_token_id": token("<|im_end|>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
            "rope_scaling": {
                "rope_type": "default",
                "mrope_section": list(CONFIG.rope_sections),
                "mrope_interleaved": True,
            },
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "depth": CONFIG.tower_layers,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": CONFIG.tower_hidden,
            "intermediate_size": CONFIG.tower_ffn,
            "num_heads": CONFIG.tower_heads,
            "num_position_embeddings": CONFIG.table_side**2,
            "out_hidden_size": CONFIG.hidden,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": 2,
            "deepstack_visual_indexes": list(CONFIG.stacked_layers),
        },
    }
