"""A Gemma 4 of the kind of the 12B, of two layers, that reads images and sound: random weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hearthd.models.families.gemma4_unified import ARCHITECTURE, Config
from tests.baker import small_gemma4, small_gemma4_sound
from tests.baker.small_smolvlm import write_model
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = small_gemma4_sound.SPECIAL
FRAME = 640
CONFIG = Config(
    **{
        name: value
        for name, value in asdict(small_gemma4.CONFIG).items()
        if not name.startswith("tower_")
    } | {
        "vocab_size": 256 + len(SPECIAL), "layer_embedding": None, "image_blocks": True,
        "square_width": 64, "square_eps": 1e-6, "sound_frame": FRAME,
    },
)  # fmt: skip
_SIDE = CONFIG.image.patch


def small_gemma4_unified(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    shapes = {}
    for name, parameter in ARCHITECTURE.model(CONFIG).parameters().items():
        stored = ARCHITECTURE.tensors.find(CONFIG, name, (), gguf=False).name
        if name.partition(".")[0] not in ARCHITECTURE.tensors.towers:
            stored = stored.replace("model.", "model.language_model.", 1)
        shape = parameter.shape
        if name == "squares.position_embedding.weight":
            stored, shape = "model.vision_embedder.pos_embedding", (shape[0] // 2, 2, shape[1])
        shapes[stored] = shape
    processor = {
        **small_gemma4.PROCESSOR,
        "image_processor_type": "Gemma4UnifiedImageProcessor",
        "model_patch_size": _SIDE,
    }
    template = small_gemma4_sound.TEMPLATE
    write_model(folder, random_tensors(shapes), _config(), processor, template, SPECIAL)
    processors = {"audio_seq_length": 750, "feature_extractor": FEATURE_EXTRACTOR}
    (folder / "processor_config.json").write_text(json.dumps(processors))
    return folder


def _config() -> dict[str, Any]:
    usual = small_gemma4.config_json(CONFIG.vocab_size)
    text = {
        name: value
        for name, value in usual["text_config"].items()
        if not name.endswith("per_layer_input")
    }
    return {
        **usual,
        **small_gemma4_sound.TOKENS,
        "architectures": ["Gemma4UnifiedForConditionalGeneration"],
        "model_type": "gemma4_unified",
        "text_config": {
            **text,
            "model_type": "gemma4_unified_text",
            "use_bidirectional_attention": "vision",
        },
        "vision_config": {
            "model_type": "gemma4_unified_vision",
            "patch_size": CONFIG.patch_size,
            "pooling_kernel_size": CONFIG.merged_patches,
            "model_patch_size": _SIDE,
            "mm_embed_dim": CONFIG.square_width,
            "mm_posemb_size": CONFIG.table_side,
            "output_proj_dims": CONFIG.square_width,
        },
        "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": FRAME},
    }


# As transformers writes it.
FEATURE_EXTRACTOR: dict[str, Any] = {
    "audio_samples_per_token": FRAME,
    "feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor",
    "feature_size": FRAME,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 16_000,
}
