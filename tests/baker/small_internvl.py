"""An InternVL 3 of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.internvl import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")
SIDE, ROWS, MAX_TILES = 32, 4, 4
CONFIG = Config(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=False, attention_bias=True,
    image_size=SIDE, patch_size=8, joined_patches=2, tower_layers=2, tower_hidden=64, tower_ffn=96,
    tower_heads=2, tower_norm_eps=1e-6, tower_bias=True,
)  # fmt: skip
# The template of the published models, without a system prompt.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def small_internvl(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=_published, shape=_shape)
    write_model(folder, tensors, _config(), _processor(), TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    if name.startswith("model.language_model."):
        return name.replace("model.language_model.", "language_model.model.")
    return f"language_model.{name}" if name.startswith("lm_head.") else name.removeprefix("model.")


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, CONFIG.patch_size, CONFIG.patch_size)
    if name in ("tower.class_embedding.weight", "tower.position_embedding.weight"):
        return (1, *shape)
    return shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "downsample_ratio": 0.5,
        "image_seq_length": ROWS,
        "image_token_id": 256 + SPECIAL.index("<IMG_CONTEXT>"),
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": False,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "text_config": {
            "model_type": "qwen2",
            "eos_token_id": 256 + SPECIAL.index("<|im_end|>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
        },
        "vision_config": {
            "model_type": "internvl_vision",
            "attention_bias": True,
            "hidden_act": "gelu",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": [SIDE, SIDE],
            "intermediate_size": CONFIG.tower_ffn,
            "layer_norm_eps": CONFIG.tower_norm_eps,
            "norm_type": "layer_norm",
            "num_attention_heads": CONFIG.tower_heads,
            "num_channels": 3,
            "num_hidden_layers": CONFIG.tower_layers,
            "patch_size": [CONFIG.patch_size, CONFIG.patch_size],
            "use_mean_pooling": True,
            "use_qk_norm": False,
        },
    }


def _processor() -> dict[str, Any]:
    return {
        "crop_to_patches": False,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "image_std": [0.229, 0.224, 0.225],
        "max_patches": MAX_TILES,
        "min_patches": 1,
        "processor_class": "InternVLProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": SIDE, "width": SIDE},
    }
