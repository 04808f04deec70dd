"""A Qwen2.5-Omni thinker of two layers with random weights and a token for each byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.families.qwen25omni import ARCHITECTURE, Config
from tests.baker import small_qwen25vl
from tests.baker.small_qwen35 import MERGED, PATCH
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", "<|vision_bos|>",
    "<|IMAGE|>", "<|vision_eos|>", "<|VIDEO|>",
)  # fmt: skip
MELS, STATES, RATE = 16, 100, 16_000  # bands, and states of a window of 2 s
CONFIG = Config(
    layers=2, hidden=128, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e4, tied=False, attention_bias=True,
    rope_sections=(8, 12, 12), patch_size=PATCH, merged_patches=MERGED, window_squares=2,
    attends_to_all=(False, True), tower_layers=2, tower_hidden=96, tower_ffn=112, tower_heads=2,
    sound_mels=MELS, sound_states=STATES, sound_layers=3, sound_hidden=32, sound_ffn=128,
    sound_heads=2, sound_norm_eps=1e-5,
)  # fmt: skip
# The template of the published models, without videos.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|vision_bos|><|IMAGE|><|vision_eos|>' }}"
    "{% elif item['type'] == 'audio' %}{{ '<|audio_bos|><|AUDIO|><|audio_eos|>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_qwen25omni(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(ARCHITECTURE, CONFIG, name=_published, shape=_shape)
    # Published files have it, and transformers asks for it, though it is not run.
    unused = "thinker.audio_tower.audio_bos_eos_token.weight"
    tensors[unused] = np.zeros((2, CONFIG.hidden), np.float32)
    write_model(folder, tensors, _config(), processor(), TEMPLATE, SPECIAL)
    return folder


def _published(name: str) -> str:
    """The name of a tensor in the published files."""
    return name if name.startswith("thinker.") else f"thinker.{name}"


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have more axes."""
    if name == "tower.patch_embedding.weight":
        return (shape[0], 3, 2, PATCH, PATCH)
    if name.endswith(("conv1.weight", "conv2.weight")):
        return (shape[0], shape[1] // 3, 3)
    return shape


def _config() -> dict[str, Any]:
    """As `thinker_config` in the published files."""
    return {
        "architectures": ["Qwen2_5OmniThinkerForConditionalGeneration"],
        "model_type": "qwen2_5_omni_thinker",
        "audio_token_index": token("<|AUDIO|>"),
        "audio_start_token_id": token("<|audio_bos|>"),
        "audio_end_token_id": token("<|audio_eos|>"),
        "image_token_index": token("<|IMAGE|>"),
        "video_token_index": token("<|VIDEO|>"),
        "vision_start_token_id": token("<|vision_bos|>"),
        "vision_end_token_id": token("<|vision_eos|>"),
        "eos_token_id": token("<|im_end|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen2_5_omni_text",
            **text_sizes(CONFIG),
            "hidden_act": "silu",
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
            "rope_scaling": {
                "rope_type": "default",
                "type": "default",
                "mrope_section": list(CONFIG.rope_sections),
            },
            "tie_word_embeddings": False,
            "use_sliding_window": False,
        },
        "vision_config": small_qwen25vl.vision_config(CONFIG)
        | {"model_type": "qwen2_5_omni_vision_encoder"},
        "audio_config": {
            "model_type": "qwen2_5_omni_audio_encoder",
            "num_mel_bins": MELS,
            "d_model": CONFIG.sound_hidden,
            "encoder_ffn_dim": CONFIG.sound_ffn,
            "encoder_layers": CONFIG.sound_layers,
            "encoder_attention_heads": CONFIG.sound_heads,
            "n_window": STATES,
            "output_dim": CONFIG.hidden,
        },
    }


def processor() -> dict[str, Any]:
    """The settings of the published models in their one file, for smaller images and 30 s."""
    return {
        **small_qwen25vl.processor(),
        "chunk_length": 30,
        "dither": 0.0,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": MELS,
        "hop_length": 160,
        "n_fft": 400,
        "n_samples": 30 * RATE,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "Qwen2_5OmniProcessor",
        "return_attention_mask": True,
        "sampling_rate": RATE,
    }
