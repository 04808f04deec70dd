"""A Gemma 3 of two layers that reads images, with random weights and a token for each byte.

No width of its tower is a multiple of the 32 columns of a group, neither of a patch nor of the MLP,
as in the published models. A head is as wide as in these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from examples.train_tiny_gemma import initial
from hearthd.models.families.gemma3_images import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
    "<image_soft_token>",
)  # fmt: skip
SIDE, ROWS = 56, 64
CONFIG = Config(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), query_scale=64**-0.5, windows=(96, None), image_size=SIDE,
    patch_size=7, pooled_patches=1, tower_layers=2, tower_hidden=144, tower_ffn=112, tower_heads=2,
    tower_norm_eps=1e-6,
)  # fmt: skip
# The template of the published models.
TEMPLATE = (
    "{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<start_of_image>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_gemma3(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    weights = initial(ARCHITECTURE.model(CONFIG).parameters(), seed=0)
    patches = "tower.patch_embedding.weight"  # a convolution in files
    weights[patches] = weights[patches].reshape(-1, 3, CONFIG.patch_size, CONFIG.patch_size)
    for name in weights:  # an answer would repeat a token otherwise
        if ".post_" in name or name.endswith("self_attn.k_norm.weight"):
            weights[name] *= 3
    projection = weights.pop("projector.mm_input_projection.weight")
    names = {name: ARCHITECTURE.tensors.find(CONFIG, name, (), gguf=False) for name in weights}
    tensors = {
        _published(names[name].name): array - names[name].offset for name, array in weights.items()
    }
    tensors["multi_modal_projector.mm_input_projection_weight"] = projection.T.copy()
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
    write_model(folder, tensors, _config(), _processor(), TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    return f"language_model.{name}" if name.startswith("model.") else name


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "boi_token_index": token("<start_of_image>"),
        "eoi_token_index": token("<end_of_image>"),
        "image_token_index": token("<image_soft_token>"),
        "eos_token_id": token("<end_of_turn>"),
        "mm_tokens_per_image": ROWS,
        "text_config": {
            "model_type": "gemma3_text",
            **text_sizes(CONFIG),
            "query_pre_attn_scalar": 64,
            "sliding_window": CONFIG.windows[0],
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "image_size": CONFIG.image_size,
            "patch_size": CONFIG.patch_size,
            "num_hidden_layers": CONFIG.tower_layers,
            "hidden_size": CONFIG.tower_hidden,
            "intermediate_size": CONFIG.tower_ffn,
            "num_attention_heads": CONFIG.tower_heads,
            "vision_use_head": False,
        },
    }


def _processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "do_convert_rgb": None,
        "do_normalize": True,
        "do_pan_and_scan": None,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "Gemma3ImageProcessor",
        "image_seq_length": ROWS,
        "image_std": [0.5, 0.5, 0.5],
        "pan_and_scan_max_num_crops": None,
        "pan_and_scan_min_crop_size": None,
        "pan_and_scan_min_ratio_to_activate": None,
        "processor_class": "Gemma3Processor",
        "resample": 2,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": SIDE, "width": SIDE},
    }
