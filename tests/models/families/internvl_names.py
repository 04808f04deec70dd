"""The names that InternVL's own files have, which llama.cpp's converter reads."""

from __future__ import annotations

import re

_NAMES = (
    (r"^vision_tower\.", "vision_model."),
    (r"encoder\.layer\.", "encoder.layers."),
    (r"embeddings\.cls_token", "embeddings.class_embedding"),
    (r"patch_embeddings\.projection", "patch_embedding"),
    (r"position_embeddings", "position_embedding"),
    (r"attention\.projection_layer", "attn.proj"),
    (r"attention\.([qkv])_proj", r"self_attn.\1_proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"lambda_([12])", r"ls\1"),
    (r"^multi_modal_projector\.layer_norm", "mlp1.0"),
    (r"^multi_modal_projector\.linear_1", "mlp1.1"),
    (r"^multi_modal_projector\.linear_2", "mlp1.3"),
)


def own_name(name: str) -> str:
    """The name of a tensor that transformers saves."""
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name
