"""A Gemma 4 of two layers that reads images and sound, with random weights."""

from __future__ import annotations

import io
import json
import wave
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.families.gemma4_sound import ARCHITECTURE, Config
from tests.baker import small_gemma4

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SPECIAL = (*small_gemma4.SPECIAL, "<|audio>", "<|audio|>", "<audio|>")
CONFIG = Config(
    **asdict(small_gemma4.CONFIG) | {"vocab_size": 256 + len(SPECIAL)},
    sound_mels=128, sound_channels=(128, 8), sound_layers=2, sound_hidden=16, sound_heads=2,
    sound_context=12, sound_kernel=5, sound_cap=50.0, sound_residual=0.5, sound_norm_eps=1e-6,
    sound_clips=True, sound_width=24,
)  # fmt: skip
TEMPLATE = small_gemma4.TEMPLATE.replace(
    "{% elif", "{% elif item['type'] == 'audio' %}{{ '<|audio|>' }}{% elif", 1
)
TOKENS = {
    "audio_token_id": 256 + SPECIAL.index("<|audio|>"),
    "boa_token_id": 256 + SPECIAL.index("<|audio>"),
    "eoa_token_id": 256 + SPECIAL.index("<audio|>"),
}
AUDIO_CONFIG: dict[str, Any] = {
    "model_type": "gemma4_audio",
    "hidden_size": CONFIG.sound_hidden,
    "num_hidden_layers": CONFIG.sound_layers,
    "num_attention_heads": CONFIG.sound_heads,
    "subsampling_conv_channels": list(CONFIG.sound_channels),
    "output_proj_dims": CONFIG.sound_width,
}
# As transformers writes it.
FEATURE_EXTRACTOR: dict[str, Any] = {
    "dither": 0.0,
    "feature_extractor_type": "Gemma4AudioFeatureExtractor",
    "feature_size": 128,
    "fft_length": 512,
    "fft_overdrive": False,
    "frame_length": 320,
    "hop_length": 160,
    "input_scale_factor": 1.0,
    "max_frequency": 8000.0,
    "mel_floor": 0.001,
    "min_frequency": 0.0,
    "padding_side": "right",
    "padding_value": 0.0,
    "per_bin_mean": None,
    "per_bin_stddev": None,
    "preemphasis": 0.0,
    "preemphasis_htk_flavor": True,
    "return_attention_mask": True,
    "sampling_rate": 16_000,
}


def small_gemma4_sound(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    settings = {"audio_config": AUDIO_CONFIG, **TOKENS}
    small_gemma4.write_folder(folder, ARCHITECTURE, CONFIG, settings, TEMPLATE, SPECIAL)
    processors = {"audio_seq_length": 750, "feature_extractor": FEATURE_EXTRACTOR}
    (folder / "processor_config.json").write_text(json.dumps(processors))
    return folder


def samples(count: int, seed: int) -> NDArray[np.float32]:
    """A sound, of noise around a tone: f32 (count,), integers of 16 bits over 2^15."""
    noise = np.random.default_rng(seed).standard_normal(count)
    sound = 0.1 * noise + 0.3 * np.sin(np.arange(count) / (5 + seed))
    return (np.clip(np.round(sound * 2**15), -(2**15), 2**15 - 1) / 2**15).astype(np.float32)


def wav(sound: NDArray[np.float32]) -> bytes:
    """A WAV file of such samples, at 16 kHz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes((sound * 2**15).astype("<i2").tobytes())
    return file.getvalue()
