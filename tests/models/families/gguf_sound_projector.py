"""Whisper's encoder of a folder as a GGUF file, as llama.cpp's converter writes a projector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families.gguf_files import is_of_tower, written
from tests.models.families.gguf_projector import write_projector
from tests.models.families.gguf_whisper import add_whisper, as_in_convolutions

if TYPE_CHECKING:
    from pathlib import Path

_TYPES = {"voxtral": "voxtral", "ultravox": "ultravox", "qwen2audio": "qwen2a"}


def write_sound_projector(folder: Path, path: Path, architecture: str, config: Any) -> Path:
    """Write the file; returns its path."""
    if architecture not in _TYPES:  # beside a tower for images
        return write_projector(folder, path, architecture, config)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_projector_type(_TYPES[architecture])
    add_whisper(writer, config)
    if (joined := getattr(config, "joined_states", None)) is not None:
        writer.add_audio_stack_factor(joined)
    source = SafetensorsSource(folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(3, config.sound_layers))
    for name in filter(is_of_tower, source.names()):
        usual = name.replace("multi_modal", "audio.multi_modal")
        stored = names.get_name(usual, (".weight", ".bias"))
        assert stored is not None, name
        writer.add_tensor(stored, as_in_convolutions(usual, source.read(name)))
    return written(writer, path)
