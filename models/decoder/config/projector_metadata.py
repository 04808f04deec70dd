"""GGUF metadata of a tower for images, which llama.cpp calls a multimodal projector.

Source: llama.cpp, gguf-py/gguf/constants.py (`Clip`, `ClipVision`) and tools/mtmd/clip.cpp. A key
that the tower does not ask for is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.typed_keys import TypedKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "clip."
# Of a tower for sound in the same file, which is not read.
_AUDIO = ("audio.", "has_audio_encoder")
# Facts that do not matter, that the tensors say too, or that are settings of the processor.
_IGNORED = (
    "has_llava_projector", "has_text_encoder", "vision.image_mean", "vision.image_std",
    "vision.preproc_image_size", "vision.projection_dim",
)  # fmt: skip


class ProjectorMetadata(TypedKeys):
    """Reads the keys of a tower, without "clip.".

    metadata  all keys of the weights
    type      the value that `clip.projector_type` must have
    """

    def __init__(self, metadata: Mapping[str, Any], type_: str) -> None:
        data = {
            key.removeprefix(PREFIX): value
            for key, value in metadata.items()
            if key.startswith(PREFIX)
        }
        super().__init__(data, PREFIX)
        if not data:
            raise ConfigError(
                f"the GGUF file has no tower for images: specify its projector, a file of type "
                f"{type_}, with --mmproj"
            )
        self.ignore(*_IGNORED, *(key for key in data if key.startswith(_AUDIO)))
        name = self.text("vision.projector_type", default=self.text("projector_type", default=""))
        if name != type_:
            raise ConfigError(
                f"clip.projector_type: got {name!r:.80}, expected {type_}; specify the projector "
                "of this model with --mmproj"
            )
        for key, expected in (
            ("has_vision_encoder", True), ("use_gelu", True), ("use_silu", False),
        ):  # fmt: skip
            if self.flag(key, default=expected) != expected:
                raise ConfigError(f"clip.{key} is {not expected}, supported is {expected}")

    def finish(self) -> None:
        """Raise ConfigError for keys that were not asked for."""
        if unknown := sorted(self._data.keys() - self._read):
            raise ConfigError(
                f"clip.*: unknown key {', '.join(unknown):.200}: it may change what the tower "
                "computes"
            )
