"""Fields of the configurations of published sizes that several families have: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID

if TYPE_CHECKING:
    from collections.abc import Mapping

QWEN35: Mapping[str, Any] = {
    "attends": (False, True), "rotary_width": 64, "key_heads": 16, "value_heads": 16,
    "key_width": 128, "value_width": 128, "taps": 4,
}  # fmt: skip
QWEN35_MOE: Mapping[str, Any] = {
    **QWEN35, "tied": False, "value_heads": 32, "experts": 256, "experts_per_token": 8,
    "expert_ffn": 512, "routed": (True, True), "normalized": True, "shared_ffn": 512,
    "shared_gate": True,
}  # fmt: skip
CORRECTED: Mapping[str, Any] = {
    "routed": (False, True), "scores": SIGMOID, "choice_bias": True, "normalized": True,
    "sum_offset": 1e-20,
}  # fmt: skip
GEMMA4: Mapping[str, Any] = {
    "layers": 3, "windows": (512, None, 512), "local_head_dim": 256, "local_rope_base": 1e4,
    "layer_embedding": 256, "caching_layers": 2, "ffns": (6144, 6144, 12288), "logit_cap": 30.0,
}  # fmt: skip
GEMMA4_TOWER: Mapping[str, Any] = {
    "patch_size": 16, "merged_patches": 3, "table_side": 10240, "tower_layers": 2,
    "tower_norm_eps": 1e-6,
}  # fmt: skip
GEMMA4_IMAGES = {
    **GEMMA4, **GEMMA4_TOWER, "tower_hidden": 768, "tower_ffn": 3072, "tower_heads": 12,
    "tower_head_dim": 64, "tower_clips": True, "tower_standardizes": False,
}  # fmt: skip
GEMMA4_UNIFIED = {
    "windows": (1024, None), "local_head_dim": 256, "local_kv_heads": 8, "local_rope_base": 1e4,
    "layer_embedding": None, "keys_are_values": True, "caching_layers": 2, "ffns": (15360,) * 2,
    "logit_cap": 30.0, "patch_size": 16, "merged_patches": 3, "table_side": 1120,
    "square_width": 3840, "square_eps": 1e-6, "image_blocks": True, "sound_frame": 640,
}  # fmt: skip
GEMMA4_MOE: Mapping[str, Any] = {
    "windows": (1024, None), "local_head_dim": 256, "local_kv_heads": 8, "local_rope_base": 1e4,
    "layer_embedding": None, "keys_are_values": True, "caching_layers": 2, "ffns": (2112, 2112),
    "logit_cap": 30.0, "experts": 128, "experts_per_token": 8, "expert_ffn": 704,
    "routed": (True, True), "normalized": True,
}  # fmt: skip
GRANITE_EXPERTS: Mapping[str, Any] = {
    "experts": 32, "experts_per_token": 8, "expert_ffn": 512, "routed": (True, True),
    "normalized": True, "scores": CHOSEN,
}  # fmt: skip
# Two layers of InternViT 300M.
INTERN_TOWER: Mapping[str, Any] = {
    "image_size": 448, "patch_size": 14, "tower_layers": 2, "tower_hidden": 1024,
    "tower_ffn": 4096, "tower_heads": 16, "tower_norm_eps": 1e-6, "tower_bias": True,
    "joined_patches": 2,
}  # fmt: skip
# Two layers of the tower of Qwen3-VL-2B and 4B, of which the text model adds the first.
DEEPSTACK_TOWER: Mapping[str, Any] = {
    "patch_size": 16, "merged_patches": 2, "table_side": 48, "tower_layers": 2,
    "tower_hidden": 1024, "tower_ffn": 4096, "tower_heads": 16, "rope_sections": (24, 20, 20),
    "is_stacked": (True, False),
}  # fmt: skip
# Two layers of the tower of Qwen3.5-2B and 4B.
GRID_TOWER: Mapping[str, Any] = {
    "patch_size": 16, "merged_patches": 2, "table_side": 48, "tower_layers": 2,
    "tower_hidden": 1024, "tower_ffn": 4096, "tower_heads": 16, "rope_sections": (11, 11, 10),
}  # fmt: skip
