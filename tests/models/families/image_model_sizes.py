"""Published sizes of models that read images: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.size import Size, decoder
from tests.models.families.size_fields import CORRECTED, DEEPSTACK_TOWER

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINICPM_TOWER: Mapping[str, Any] = {
    "image_size": 448, "patch_size": 14, "table_side": 70, "queries": 64, "tower_layers": 2,
    "tower_hidden": 1152, "tower_ffn": 4304, "tower_heads": 16, "tower_norm_eps": 1e-6,
}  # fmt: skip
_CLIP_TOWER: Mapping[str, Any] = {
    "image_size": 336, "patch_size": 14, "tower_layers": 3, "layers_read": 2,
    "tower_hidden": 1024, "tower_ffn": 4096, "tower_heads": 16, "tower_norm_eps": 1e-5,
    "tower_activation": "quick_gelu",
}  # fmt: skip
IMAGE_MODEL_SIZES: Mapping[str, Size] = {
    # zai-org/GLM-4.1V-9B-Thinking
    "glm4.1v": decoder(
        4096, 13696, 32, 2, 128, 151552,
        rope_base=1e4, tied=False, attention_bias=True, rotary_width=64,
    ),
    "glm4.1v-images": decoder(
        4096, 13696, 32, 2, 128, 151552,
        rope_base=1e4, tied=False, attention_bias=True, rotary_width=64,
        rope_sections=(8, 12, 12), patch_size=14, merged_patches=2, table_side=24, tower_layers=2,
        tower_hidden=1536, tower_ffn=4096, tower_heads=12, tower_norm_eps=1e-5,
        projector_ffn=13696,
    ),
    # zai-org/GLM-4.5V
    "glm4.5v-images": decoder(
        4096, 10944, 96, 8, 128, 151552,
        rope_base=1e4, tied=False, attention_bias=True, rotary_width=64, normed_heads=False,
        experts=128, experts_per_token=8, expert_ffn=1408, shared_ffn=1408, **CORRECTED,
        rope_sections=(8, 12, 12), patch_size=14, merged_patches=2, table_side=24, tower_layers=2,
        tower_hidden=1536, tower_ffn=4096, tower_heads=12, tower_norm_eps=1e-5,
        projector_ffn=10944,
    ),
    # zai-org/GLM-OCR
    "glm-ocr": decoder(
        1536, 4608, 16, 8, 128, 59392,
        rope_base=1e4, tied=False, rotary_width=128, rope_sections=(16, 24, 24), patch_size=14,
        merged_patches=2, tower_layers=2, tower_hidden=1024, tower_ffn=4096, tower_heads=16,
        tower_norm_eps=1e-5, projector_ffn=4608,
    ),
    # PaddlePaddle/PaddleOCR-VL
    "paddleocr-vl": decoder(
        1024, 3072, 16, 2, 128, 103424,
        rope_base=5e5, tied=False, rope_sections=(16, 24, 24), patch_size=14, merged_patches=2,
        table_side=27, tower_layers=2, tower_hidden=1152, tower_ffn=4304, tower_heads=16,
        tower_norm_eps=1e-6,
    ),
    # openbmb/MiniCPM-V-2_6
    "minicpm-v2.6": decoder(
        3584, 18944, 28, 4, 128, 151666,
        rope_base=1e6, tied=False, attention_bias=True, **_MINICPM_TOWER,
    ),
    # openbmb/MiniCPM-V-4
    "minicpm-v4": decoder(
        2560, 10240, 32, 2, 128, 73448,
        rope_base=1e4, tied=False, rope_divisors=(1.02,) * 64, long_divisors=(1.05,) * 64,
        original_context=32768, **_MINICPM_TOWER,
    ),
    # openbmb/MiniCPM-V-4_5
    "minicpm-v4.5": decoder(
        4096, 12288, 32, 8, 128, 151748, rope_base=1e6, tied=False, **_MINICPM_TOWER
    ),
    # lightonai/LightOnOCR-1B-1025
    "lightonocr": decoder(
        1024, 3072, 16, 8, 128, 151936,
        rope_base=1e6, patch_size=14, merged_patches=2, longest_edge=1540, tower_layers=2,
        tower_hidden=1024, tower_ffn=4096, tower_heads=16, tower_rope_base=1e4,
        projector_bias=False,
    ),
    # llava-hf/llava-1.5-7b-hf
    "llava": decoder(4096, 11008, 32, 32, 128, 32064, tied=False, **_CLIP_TOWER),
    # ibm-granite/granite-vision-3.2-2b
    "granite-vision3": decoder(
        2048, 8192, 32, 8, 64, 49156,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.22, logit_scale=8.0,
        image_size=384, patch_size=14, tower_layers=2, read_layers=(1, 2), tower_hidden=1152,
        tower_ffn=4304, tower_heads=16, tower_norm_eps=1e-6,
    ),
    # llava-hf/llava-v1.6-mistral-7b-hf
    "llava1.6": decoder(
        4096, 14336, 32, 8, 128, 32064, rope_base=1e6, tied=False, **_CLIP_TOWER
    ),
    # mistralai/Ministral-3-3B-Instruct-2512
    "ministral3-images": decoder(
        3072, 9216, 32, 8, 128, 131072,
        rope_divisors=(1.0,) * 32 + (16.0,) * 32, query_growth=0.1, original_context=16384,
        patch_size=14, merged_patches=2, longest_edge=1540, tower_layers=2, tower_hidden=1024,
        tower_ffn=4096, tower_heads=16, tower_rope_base=1e4, projector_bias=False,
    ),
    # mistral-community/pixtral-12b
    "pixtral": decoder(
        5120, 14336, 32, 8, 128, 131072,
        tied=False, rope_base=1e9, patch_size=16, merged_patches=1, longest_edge=1024,
        tower_layers=2, tower_hidden=1024, tower_ffn=4096, tower_heads=16, tower_rope_base=1e4,
        projector_bias=True, has_merger=False,
    ),
    # Qwen/Qwen2-VL-2B-Instruct
    "qwen2-vl-images": decoder(
        1536, 8960, 12, 2, 128, 151936,
        attention_bias=True, rope_sections=(16, 24, 24), patch_size=14, merged_patches=2,
        tower_layers=2, tower_hidden=1280, tower_ffn=5120, tower_heads=16,
    ),
    # Qwen/Qwen2.5-VL-3B-Instruct
    "qwen2.5-vl-images": decoder(
        2048, 11008, 16, 2, 128, 151936,
        attention_bias=True, rope_sections=(16, 24, 24), patch_size=14, merged_patches=2,
        window_squares=4, attends_to_all=(False, True), tower_layers=2, tower_hidden=1280,
        tower_ffn=3420, tower_heads=16,
    ),
    # Qwen/Qwen3-VL-2B-Instruct
    "qwen3-vl-images": decoder(2048, 6144, 16, 8, 128, 151936, rope_base=5e6, **DEEPSTACK_TOWER),
    # Qwen/Qwen3-VL-30B-A3B-Instruct
    "qwen3-vl-moe-images": decoder(
        2048, 6144, 32, 4, 128, 151936,
        rope_base=5e6, tied=False, experts=128, experts_per_token=8, expert_ffn=768,
        normalized=True, routed=(True, True),
        **DEEPSTACK_TOWER,
    ),
}  # fmt: skip
