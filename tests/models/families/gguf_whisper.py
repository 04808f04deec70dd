"""Whisper's encoder in GGUF files, as llama.cpp's converter writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gguf
    from numpy.typing import NDArray


def add_whisper(writer: gguf.GGUFWriter, config: Any) -> None:
    """Write the keys of an encoder."""
    writer.add_clip_has_audio_encoder(True)
    writer.add_audio_projection_dim(config.hidden)
    writer.add_audio_embedding_length(config.sound_hidden)
    writer.add_audio_feed_forward_length(config.sound_ffn)
    writer.add_audio_block_count(config.sound_layers)
    writer.add_audio_head_count(config.sound_heads)
    writer.add_audio_num_mel_bins(config.sound_mels)
    writer.add_audio_attention_layernorm_eps(config.sound_norm_eps)


def as_in_convolutions(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Of a convolution, a bias as a column, and weights in F16; other values as they are."""
    if ".conv" not in name:
        return values
    return values[:, None] if values.ndim == 1 else values.astype(np.float16)


def sinusoids(states: int, width: int) -> NDArray[np.float32]:
    """The table of positions, but for the last bits, which PyTorch computes."""
    scales = np.exp(-np.log(10_000) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(states)[:, np.newaxis] * scales
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


# Ends of the names of tensors that PyTorch computes in the converter.
COMPUTED = ("per_dim_scale.weight", "a.position_embd.weight")
