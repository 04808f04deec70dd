"""A GLM-4.1V and a GLM-OCR of two layers with random weights and a token for each byte."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hearthd.models.families import glm4v_images, glm_ocr
from hearthd.models.families.glm4v_images import VisionConfig
from hearthd.models.towers.qwen3vl import FRAMES
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.decoder.architecture import Architecture

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
OCR_CONFIG = glm_ocr.Config(
    **{field.name: getattr(CONFIG, field.name) for field in fields(glm_ocr.Config)}
    | {"attention_bias": False, "projector_ffn": 3 * CONFIG.hidden}
)
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
    vision = {
        "model_type": "glm4v",
        "image_size": CONFIG.table_side * PATCH,
        "intermediate_size": CONFIG.projector_ffn,
    }
    return _write(folder, glm4v_images.ARCHITECTURE, CONFIG, "glm4v", vision)


def small_glm_ocr(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    vision = {"model_type": "glm_ocr_vision", "intermediate_size": OCR_CONFIG.tower_ffn}
    return _write(folder, glm_ocr.ARCHITECTURE, OCR_CONFIG, "glm_ocr", vision)


def _write(
    folder: Path,
    architecture: Architecture[Any],
    config: VisionConfig | glm_ocr.Config,
    name: str,
    vision: dict[str, Any],
) -> Path:
    tensors = small_tensors(architecture, config, shape=_shape)
    write_model(folder, tensors, _config(config, name, vision), _processor(), TEMPLATE, SPECIAL)
    return folder


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, FRAMES, PATCH, PATCH)
    if name == "merger.downsample.weight":
        return (shape[0], CONFIG.tower_hidden, MERGED, MERGED)
    return shape


def _config(
    config: VisionConfig | glm_ocr.Config, name: str, vision: dict[str, Any]
) -> dict[str, Any]:
    return {
        "architectures": [f"{name.title().replace('_', '')}ForConditionalGeneration"],
        "model_type": name,
        "image_token_id": token("<|image|>"),
        "image_start_token_id": token("<|begin_of_image|>"),
        "image_end_token_id": token("<|end_of_image|>"),
        "video_token_id": token("<|video|>"),
        "video_start_token_id": token("<|begin_of_video|>"),
        "video_end_token_id": token("<|end_of_video|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": f"{name}_text",
            "attention_bias": config.attention_bias,
            "eos_token_id": token("<|endoftext|>"),
            **text_sizes(config),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": CONFIG.rope_base,
                "partial_rotary_factor": CONFIG.rotary_width / CONFIG.head_dim,
                "mrope_section": list(CONFIG.rope_sections),
            },
        },
        "vision_config": {
            "attention_bias": not config.attention_bias,
            "depth": CONFIG.tower_layers,
            "hidden_act": "silu",
            "hidden_size": CONFIG.tower_hidden,
            "in_channels": 3,
            "num_heads": CONFIG.tower_heads,
            "out_hidden_size": CONFIG.hidden,
            "patch_size": PATCH,
            "rms_norm_eps": CONFIG.tower_norm_eps,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": FRAMES,
            **vision,
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
