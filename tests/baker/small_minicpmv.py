"""A MiniCPM-V 2.6 of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.families.minicpmv import ARCHITECTURE, Config, image_input
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<unk>", "<image>", "</image>", "<slice>", "</slice>",
    "<image_id>", "</image_id>",
)  # fmt: skip
IMAGE = 256 + SPECIAL.index("<unk>")
SIDE, PATCH, ROWS = 32, 8, 4
CONFIG = Config(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e4, tied=False, attention_bias=True,
    image_size=SIDE, patch_size=PATCH, table_side=7, queries=ROWS, tower_layers=2,
    tower_hidden=64, tower_ffn=96, tower_heads=2, tower_norm_eps=1e-6,
)  # fmt: skip
# The template of the published models, which takes texts only.
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PROCESSOR: dict[str, Any] = {
    "auto_map": {"AutoImageProcessor": "image_processing_minicpmv.MiniCPMVImageProcessor"},
    "im_end": "</image>",
    "im_id_end": "</image_id>",
    "im_id_start": "<image_id>",
    "im_start": "<image>",
    "image_feature_size": ROWS,
    "image_processor_type": "MiniCPMVImageProcessor",
    "max_slice_nums": 9,
    "norm_mean": [0.5, 0.5, 0.5],
    "norm_std": [0.5, 0.5, 0.5],
    "patch_size": PATCH,
    "processor_class": "MiniCPMVProcessor",
    "scale_resolution": SIDE,
    "slice_end": "</slice>",
    "slice_mode": True,
    "slice_start": "<slice>",
    "unk": "<unk>",
    "use_image_id": True,
    "version": 2.6,
}
IMAGES = image_input(CONFIG, ConfigJson(_PROCESSOR))


def small_minicpmv(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=_published, shape=_shape)
    for kind in ("weight", "bias"):
        parts = [tensors.pop(f"resampler.attn.{part}_proj.{kind}") for part in "qkv"]
        tensors[f"resampler.attn.in_proj_{kind}"] = np.concatenate(parts)
    write_model(folder, tensors, _config(), _PROCESSOR, TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    names = {"lm_head.weight": "llm.lm_head.weight", "resampler.proj.weight": "resampler.proj"}
    return names.get(name, name)


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    return (shape[0], 3, PATCH, PATCH) if name == "tower.patch_embedding.weight" else shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["MiniCPMV"],
        "model_type": "minicpmv",
        "batch_vision_input": True,
        "drop_vision_last_layer": False,
        "eos_token_id": 256 + SPECIAL.index("<|im_end|>"),
        "image_size": SIDE,
        "patch_size": PATCH,
        "query_num": ROWS,
        "rms_norm_eps": CONFIG.norm_eps,
        "rope_theta": CONFIG.rope_base,
        "slice_config": {"max_slice_nums": 9, "model_type": "minicpmv", "patch_size": PATCH},
        "slice_mode": True,
        "tie_word_embeddings": False,
        "use_image_id": True,
        "version": 2.6,
        **text_sizes(CONFIG),
        "vision_config": {
            "model_type": "siglip",
            "hidden_size": CONFIG.tower_hidden,
            "image_size": CONFIG.table_side * PATCH,
            "intermediate_size": CONFIG.tower_ffn,
            "num_attention_heads": CONFIG.tower_heads,
            "num_hidden_layers": CONFIG.tower_layers,
            "patch_size": PATCH,
        },
    }
