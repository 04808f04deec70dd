"""A LLaVA 1.5 of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.llava import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("<s>", "</s>", "<image>", "<pad>")
SIDE, ROWS = 32, 16
CONFIG = Config(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=4, head_dim=16, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=False, image_size=SIDE,
    patch_size=8, tower_layers=3, layers_read=2, tower_hidden=64, tower_ffn=96, tower_heads=2,
    tower_norm_eps=1e-5, tower_activation="quick_gelu",
)  # fmt: skip
# That of the published models.
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' '}}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def small_llava(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=published, shape=shape_in_files)
    write_model(folder, tensors, config(), processor(), TEMPLATE, SPECIAL)
    return folder


def published(name: str) -> str:
    """The name of a tensor in the published files."""
    if name.startswith("model.language_model."):
        return name.replace("model.language_model.", "language_model.model.")
    if name.startswith("lm_head."):
        return f"language_model.{name}"
    inner = name.removeprefix("model.")
    return inner.replace("vision_tower.", "vision_tower.vision_model.")


def shape_in_files(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, CONFIG.patch_size, CONFIG.patch_size)
    is_vector = name in ("tower.class_embedding.weight", "line_end.row.weight")
    return shape[1:] if is_vector else shape


def config() -> dict[str, Any]:
    """The fields of config.json."""
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "ignore_index": -100,
        "image_seq_length": ROWS,
        "image_token_index": 256 + SPECIAL.index("<image>"),
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "text_config": {
            "model_type": "llama",
            "eos_token_id": 256 + SPECIAL.index("</s>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
        },
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": SIDE,
            "intermediate_size": CONFIG.tower_ffn,
            "num_attention_heads": CONFIG.tower_heads,
            "num_hidden_layers": CONFIG.tower_layers,
            "patch_size": CONFIG.patch_size,
            "projection_dim": 48,
            "vocab_size": 100,
        },
    }


def processor() -> dict[str, Any]:
    """The settings of the published models, for smaller images."""
    return {
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_processor_type": "CLIPImageProcessor",
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "processor_class": "LlavaProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"shortest_edge": SIDE},
    }
