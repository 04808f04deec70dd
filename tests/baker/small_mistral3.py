"""A Ministral 3 of two layers that reads images, with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.mistral3_images import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "</s>")
PATCH, MERGED = 4, 2
EDGE = 60  # pixels of the longer side of the largest image
CONFIG = Config(
    layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=False, query_growth=0.1,
    original_context=64, patch_size=PATCH, merged_patches=MERGED, longest_edge=EDGE,
    tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2, tower_rope_base=1e4,
    projector_bias=False,
)  # fmt: skip
# The template of the published models, without tools and a system prompt.
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST]' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'text' %}{{ item['text'] }}"
    "{% elif item['type'] in ['image', 'image_url'] %}{{ '[IMG]' }}{% endif %}"
    "{% endfor %}{% endif %}{{ '[/INST]' }}"
    "{% else %}{{ message['content'] + '</s>' }}{% endif %}{% endfor %}"
)


def small_mistral3(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=_published, shape=_shape)
    write_model(folder, tensors, _config(), PROCESSOR, TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    if name.startswith(("model.vision_tower.", "model.multi_modal_projector.")):
        return name.removeprefix("model.")
    return f"language_model.{name}"


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], 3, PATCH, PATCH) if name == "tower.patch_conv.weight" else shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "image_token_index": 256 + SPECIAL.index("[IMG]"),
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": MERGED,
        "tie_word_embeddings": False,
        "vision_feature_layer": -1,
        "text_config": {
            "model_type": "ministral3",
            "eos_token_id": 256 + SPECIAL.index("</s>"),
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": CONFIG.rope_base,
                "llama_4_scaling_beta": CONFIG.query_growth,
                "original_max_position_embeddings": CONFIG.original_context,
            },
        },
        "vision_config": {
            "model_type": "pixtral",
            "attention_dropout": 0.0,
            "head_dim": CONFIG.tower_hidden // CONFIG.tower_heads,
            "hidden_act": "silu",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": EDGE,
            "intermediate_size": CONFIG.tower_ffn,
            "num_attention_heads": CONFIG.tower_heads,
            "num_channels": 3,
            "num_hidden_layers": CONFIG.tower_layers,
            "patch_size": PATCH,
            "rope_theta": CONFIG.tower_rope_base,
        },
    }


# The settings of the published models, for smaller images.
PROCESSOR: dict[str, Any] = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_processor_type": "PixtralImageProcessor",
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": PATCH,
    "processor_class": "PixtralProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"longest_edge": EDGE},
}
