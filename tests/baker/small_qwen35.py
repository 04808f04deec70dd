"""A Qwen3.5 of two layers that reads images, with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.qwen35_images import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
PATCH, MERGED = 4, 2
# Pixels of the smallest and the largest image: 6 and 60 rows of embeddings.
MIN_PIXELS, MAX_PIXELS = 6 * 64, 60 * 64
CONFIG = Config(
    layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e4, tied=False,
    attends=(False, True), key_heads=2, value_heads=4, key_width=16, value_width=16, taps=4,
    rotary_width=32, rope_sections=(6, 5, 5), patch_size=PATCH, merged_patches=MERGED,
    table_side=5, tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2,
)  # fmt: skip
# The template of the published models, without tools and thoughts.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_qwen35(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=published, shape=_shape)
    write_model(folder, tensors, _config(), processor(), TEMPLATE, SPECIAL)
    return folder


def published(name: str) -> str:
    """The name of a tensor in the published files."""
    if name.startswith("model.") and not name.startswith("model.visual."):
        return name.replace("model.", "model.language_model.", 1)
    return name


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, 2, PATCH, PATCH)
    return (shape[0], 1, shape[1]) if "conv1d" in name else shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_5_text",
            "eos_token_id": token("<|im_end|>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": CONFIG.key_heads,
            "linear_num_value_heads": CONFIG.value_heads,
            "linear_key_head_dim": CONFIG.key_width,
            "linear_value_head_dim": CONFIG.value_width,
            "linear_conv_kernel_dim": CONFIG.taps,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": CONFIG.rope_base,
                "partial_rotary_factor": CONFIG.rotary_width / CONFIG.head_dim,
                "mrope_section": list(CONFIG.rope_sections),
                "mrope_interleaved": True,
            },
        },
        "vision_config": {
            "model_type": "qwen3_5",
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
            "deepstack_visual_indexes": [],
        },
    }


def processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "size": {"longest_edge": MAX_PIXELS, "shortest_edge": MIN_PIXELS},
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGED,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }
