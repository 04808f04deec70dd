"""Published sizes of models that hear with Whisper's encoder, with few layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.size import Size, decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

# Two layers of the encoder of Whisper large.
_WHISPER_LARGE: Mapping[str, Any] = {
    "sound_mels": 128, "sound_states": 1500, "sound_layers": 2, "sound_hidden": 1280,
    "sound_ffn": 5120, "sound_heads": 20, "sound_norm_eps": 1e-5,
}  # fmt: skip
# Source: config.json of the repository that is named.
SOUND_SIZES: Mapping[str, Size] = {
    # Qwen/Qwen2-Audio-7B-Instruct
    "qwen2-audio": decoder(
        4096, 11008, 32, 32, 128, 156032,
        tied=False, attention_bias=True, rope_base=1e4, **_WHISPER_LARGE,
    ),
    # Qwen/Qwen2.5-Omni-7B
    "qwen2.5-omni": decoder(
        3584, 18944, 28, 4, 128, 152064,
        tied=False, attention_bias=True, rope_sections=(16, 24, 24), patch_size=14,
        merged_patches=2, window_squares=4, attends_to_all=(False, True), tower_layers=2,
        tower_hidden=1280, tower_ffn=3420, tower_heads=16,
        **{**_WHISPER_LARGE, "sound_states": 100},
    ),
    # fixie-ai/ultravox-v0_5-llama-3_2-1b with meta-llama/Llama-3.2-1B-Instruct
    "ultravox": decoder(
        2048, 8192, 32, 8, 64, 128256,
        rope_base=5e5, joined_states=8, projector_width=1024, **_WHISPER_LARGE,
    ),
    # mistralai/Voxtral-Mini-3B-2507
    "voxtral": decoder(
        3072, 8192, 32, 8, 128, 131072,
        tied=False, rope_base=1e8, joined_states=4, **_WHISPER_LARGE,
    ),
}  # fmt: skip
