"""A PaddleOCR-VL of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.families.paddleocr_vl import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>", "</s>")
PATCH, MERGED = 4, 2
# Pixels of the smallest and the largest image: 6 and 60 rows of embeddings.
MIN_PIXELS, MAX_PIXELS = 6 * 64, 60 * 64
CONFIG = Config(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=5e5, tied=False,
    rope_sections=(8, 12, 12), patch_size=PATCH, merged_patches=MERGED, table_side=5,
    tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2, tower_norm_eps=1e-6,
)  # fmt: skip
# The template of the published models: images precede the text of a message.
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "{{ '<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>' }}{% endif %}{% endfor %}"
    "{% for item in message['content'] %}{% if item['type'] == 'text' %}"
    "{{ item['text'] }}{% endif %}{% endfor %}{% endif %}{{ '\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + '</s>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_paddleocr(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, shape=_shape)
    start = "visual.vision_model."  # published files have tensors that no model reads
    rows = np.zeros((3, CONFIG.tower_hidden), np.float32)
    tensors[f"{start}embeddings.packing_position_embedding.weight"] = rows
    tensors[f"{start}head.attention.in_proj_weight"] = rows
    write_model(folder, tensors, _config(), _processor(), TEMPLATE, SPECIAL)
    return folder


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, PATCH, PATCH)
    return shape


def _config() -> dict[str, Any]:
    """As in the published files, without a section for the text model."""
    return {
        "architectures": ["PaddleOCRVLForConditionalGeneration"],
        "model_type": "paddleocr_vl",
        "attention_probs_dropout_prob": 0.0,
        "compression_ratio": 1.0,
        "hidden_act": "silu",
        "hidden_dropout_prob": 0.0,
        "ignored_index": -100,
        "image_token_id": token("<|IMAGE_PLACEHOLDER|>"),
        "video_token_id": token("<|IMAGE_PLACEHOLDER|>"),
        "vision_start_token_id": token("<|IMAGE_START|>"),
        "eos_token_id": token("</s>"),
        "max_sequence_length": None,
        "rms_norm_eps": CONFIG.norm_eps,
        "rope_is_neox_style": True,
        "rope_scaling": {
            "mrope_section": list(CONFIG.rope_sections), "rope_type": "default", "type": "default",
        },
        "rope_theta": 500000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_3d_rope": True,
        "use_bias": False,
        "use_flash_attention": False,
        "weight_share_add_bias": True,
        **text_sizes(CONFIG),
        "vision_config": {
            "architectures": ["PaddleOCRVisionModel"],
            "model_type": "paddleocr_vl",
            "attention_dropout": 0.0,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": CONFIG.table_side * PATCH,
            "intermediate_size": CONFIG.tower_ffn,
            "layer_norm_eps": CONFIG.tower_norm_eps,
            "num_attention_heads": CONFIG.tower_heads,
            "num_channels": 3,
            "num_hidden_layers": CONFIG.tower_layers,
            "pad_token_id": 0,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
        },
    }  # fmt: skip


def _processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "image_processor_type": "PaddleOCRVLImageProcessor",
        "max_pixels": MAX_PIXELS,
        "min_pixels": MIN_PIXELS,
        "merge_size": MERGED,
        "patch_size": PATCH,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"max_pixels": MAX_PIXELS, "min_pixels": MIN_PIXELS},
        "temporal_patch_size": 1,
    }
