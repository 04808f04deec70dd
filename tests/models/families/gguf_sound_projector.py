"""Whisper's encoder of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families.gguf_files import is_of_tower, written

if TYPE_CHECKING:
    from pathlib import Path

_TYPES = {"voxtral": "voxtral", "ultravox": "ultravox", "qwen2audio": "qwen2a"}


def write_sound_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_audio_encoder(True)
    writer.add_clip_projector_type(_TYPES[architecture])
    writer.add_audio_projection_dim(config.hidden)
    writer.add_audio_embedding_length(config.sound_hidden)
    writer.add_audio_feed_forward_length(config.sound_ffn)
    writer.add_audio_block_count(config.sound_layers)
    writer.add_audio_head_count(config.sound_heads)
    writer.add_audio_num_mel_bins(config.sound_mels)
    writer.add_audio_attention_layernorm_eps(config.sound_norm_eps)
    if (joined := getattr(config, "joined_states", None)) is not None:
        writer.add_audio_stack_factor(joined)
    source = SafetensorsSource(folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(3, config.sound_layers))
    for name in filter(is_of_tower, source.names()):
        usual = name.replace("multi_modal", "audio.multi_modal")
        stored = names.get_name(usual, (".weight", ".bias"))
        assert stored is not None, name
        values = source.read(name)
        if ".conv" in usual:  # a bias as a column, and weights in F16
            values = values[:, None] if values.ndim == 1 else values.astype(np.float16)
        writer.add_tensor(stored, values)
    return written(writer, path)
