"""An LFM2-VL of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families.lfm2vl import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors

if TYPE_CHECKING:
    from pathlib import Path

MAX_TILES = 4
SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>",
    "<|image_end|>", "<|img_thumbnail|>",
    *(
        f"<|img_row_{row}_col_{column}|>"
        for row in range(1, MAX_TILES + 1)
        for column in range(1, MAX_TILES + 1)
    ),
)  # fmt: skip
PATCH, MERGED = 4, 2
# Rows of embeddings of the smallest and the largest image, and pixels of a side of a tile.
MIN_ROWS, MAX_ROWS, TILE = 4, 16, 32
CONFIG = Config(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=True, taps=3,
    attends=(False, True), windows=(3, None), patch_size=PATCH, merged_patches=MERGED,
    table_side=5, tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2,
    tower_norm_eps=1e-6, projector_hidden=96, projector_norm=True, projector_bias=True,
)  # fmt: skip
# The template of the published models, without tools and the first token.
TEMPLATE = (
    "{% for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' -}}"
    "{% if message['content'] is string %}{{- message['content'] -}}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{- '<image>' -}}"
    "{% elif item['type'] == 'text' %}{{- item['text'] -}}{% endif %}{% endfor %}{% endif %}"
    "{{- '<|im_end|>\n' -}}{% endfor %}"
    "{% if add_generation_prompt %}{{- '<|im_start|>assistant\n' -}}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_lfm2vl(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, shape=_shape)
    write_model(folder, tensors, _config(), PROCESSOR, TEMPLATE, SPECIAL)
    return folder


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    return (shape[0], 1, *shape[1:]) if name.endswith("conv.weight") else shape


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Lfm2VlForConditionalGeneration"],
        "model_type": "lfm2_vl",
        "image_token_id": token("<image>"),
        "downsample_factor": MERGED,
        "projector_hidden_size": CONFIG.projector_hidden,
        "projector_hidden_act": "gelu",
        "projector_bias": True,
        "projector_use_layernorm": True,
        "text_config": {
            "model_type": "lfm2",
            "eos_token_id": token("<|im_end|>"),
            "num_hidden_layers": CONFIG.layers,
            "hidden_size": CONFIG.hidden,
            "intermediate_size": CONFIG.ffn,
            "block_auto_adjust_ff_dim": False,
            "num_attention_heads": CONFIG.heads,
            "num_key_value_heads": CONFIG.kv_heads,
            "max_position_embeddings": CONFIG.max_context,
            "vocab_size": CONFIG.vocab_size,
            "norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
            "conv_L_cache": CONFIG.taps,
            "layer_types": ["conv", "full_attention"],
        },
        "vision_config": {
            "model_type": "siglip2_vision_model",
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": CONFIG.tower_hidden,
            "intermediate_size": CONFIG.tower_ffn,
            "layer_norm_eps": CONFIG.tower_norm_eps,
            "num_attention_heads": CONFIG.tower_heads,
            "num_channels": 3,
            "num_hidden_layers": CONFIG.tower_layers,
            "num_patches": CONFIG.table_side**2,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
    }


# The settings of the published models, for smaller images.
PROCESSOR: dict[str, Any] = {
    "do_image_splitting": True,
    "do_normalize": True,
    "do_pad": True,
    "do_rescale": True,
    "do_resize": True,
    "downsample_factor": MERGED,
    "encoder_patch_size": PATCH,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Lfm2VlImageProcessorFast",
    "image_std": [0.5, 0.5, 0.5],
    "max_image_tokens": MAX_ROWS,
    "max_num_patches": MAX_ROWS * MERGED**2,
    "max_pixels_tolerance": 2.0,
    "max_tiles": MAX_TILES,
    "min_image_tokens": MIN_ROWS,
    "min_tiles": 2,
    "processor_class": "Lfm2VlProcessor",
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "return_row_col_info": True,
    "size": {"height": TILE, "width": TILE},
    "tile_size": TILE,
    "use_thumbnail": True,
}
# The settings that transformers' processor takes.
SIZES = (
    "downsample_factor", "encoder_patch_size", "max_image_tokens", "max_pixels_tolerance",
    "max_tiles", "min_image_tokens", "min_tiles", "tile_size", "use_thumbnail",
)  # fmt: skip
