"""A GLM-4.1V of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.glm4v_images import ARCHITECTURE, VisionConfig
from hearthd.models.towers.qwen3vl import FRAMES
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<|user|>", "<|assistant|>", "<|begin_of_image|>", "<|end_of_image|>", "<|image|>",
    "<|begin_of_video|>", "<|end_of_video|>", "<|video|>", "<|endoftext|>",
)  # fmt: skip
PATCH, MERGED = 4, 2
# Pixels of the smallest and the largest image: 6 and 60 rows of embeddings.
MIN_PIXELS, MAX_PIXELS = 6 * 64, 60 * 64
CONFIG = VisionConfig(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=False, attention_bias=True,
    rotary_width=32, rope_sections=(4, 6, 6), patch_size=PATCH, merged_patches=MERGED,
    table_side=5, tower_layers=2, tower_hidden=96, tower_ffn=128, tower_heads=2,
    tower_norm_eps=1e-5, projector_ffn=112,
)  # fmt: skip
# The template of the published models, without tools and thoughts.
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|begin_of_image|><|image|><|end_of_image|>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_glm4v(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, shape=_shape)
    write_model(folder, tensors, _config(), _processor(), TEMPLATE, SPECIAL)
    return folder


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, FRAMES, PATCH, PATCH)
    if name == "merger.downsample.weight":
        return (shape[0], CONFIG.tower_hidden, MERGED, MERGED)
    return shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Glm4vForConditionalGeneration"],
        "model_type": "glm4v",
        "image_token_id": token("<|image|>"),
        "image_start_token_id": token("<|begin_of_image|>"),
        "image_end_token_id": token("<|end_of_image|>"),
        "video_token_id": token("<|video|>"),
        "video_start_token_id": token("<|begin_of_video|>"),
        "video_end_token_id": token("<|end_of_video|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "glm4v_text",
            "attention_bias": True,
            "eos_token_id": token("<|endoftext|>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": CONFIG.rope_base,
                "partial_rotary_factor": CONFIG.rotary_width / CONFIG.head_dim,
                "mrope_section": list(CONFIG.rope_sections),
            },
        },
        "vision_config": {
            "model_type": "glm4v",
            "attention_bias": False,
            "depth": CONFIG.tower_layers,
            "hidden_act": "silu",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": CONFIG.table_side * PATCH,
            "in_channels": 3,
            "intermediate_size": CONFIG.projector_ffn,
            "num_heads": CONFIG.tower_heads,
            "out_hidden_size": CONFIG.hidden,
            "patch_size": PATCH,
            "rms_norm_eps": CONFIG.tower_norm_eps,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": FRAMES,
        },
    }


def _processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "size": {"longest_edge": FRAMES * MAX_PIXELS, "shortest_edge": FRAMES * MIN_PIXELS},
        "do_rescale": True,
        "patch_size": PATCH,
        "temporal_patch_size": FRAMES,
        "merge_size": MERGED,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "Glm4vImageProcessor",
        "processor_class": "Glm4vProcessor",
    }
