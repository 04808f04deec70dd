"""GGUF metadata of a tower for images or sound, which llama.cpp calls a multimodal projector.

Source: llama.cpp, gguf-py/gguf/constants.py (`Clip`, `ClipVision`, `ClipAudio`) and
tools/mtmd/clip.cpp. A key that the tower does not ask for is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hearthd.models.config import ConfigError, OtherFamily
from hearthd.models.decoder.config.typed_keys import TypedKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "clip."
TowerKind = Literal["vision", "audio"]
# What clip.cpp applies in the MLPs of a tower: of a file that names none, quick_gelu.
Activation = Literal["gelu", "quick_gelu", "silu"]
# Starts of the keys of each tower in a file.
_OF_TOWER: Mapping[TowerKind, tuple[str, ...]] = {
    "vision": ("vision.", "has_vision_encoder", "use_gelu", "use_silu"),
    "audio": ("audio.", "has_audio_encoder"),
}
_READS: Mapping[TowerKind, str] = {"vision": "images", "audio": "sound"}
# Facts that do not matter, that the tensors say too, or that are settings of the processor.
_IGNORED = (
    "audio.projection_dim", "has_llava_projector", "has_text_encoder", "vision.image_mean",
    "vision.image_std", "vision.preproc_image_size", "vision.preproc_max_tiles",
    "vision.preproc_min_tiles", "vision.projection_dim",
)  # fmt: skip


class ProjectorMetadata(TypedKeys):
    """Reads the keys of a tower, without "clip.".

    metadata  all keys of the weights
    type      the value that `clip.projector_type` must have
    tower     which of a file's towers it is; keys of another one are ignored
    activation  of the tower for images; None: the caller reads it
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        type_: str,
        tower: TowerKind,
        activation: Activation | None = "gelu",
    ) -> None:
        data = {
            key.removeprefix(PREFIX): value
            for key, value in metadata.items()
            if key.startswith(PREFIX)
        }
        super().__init__(data, PREFIX)
        if not data:
            raise ConfigError(
                f"the GGUF file has no tower for {_READS[tower]}: specify its projector, a file "
                f"of type {type_}, with --mmproj"
            )
        for kind, starts in _OF_TOWER.items():
            if kind != tower:
                self.ignore(*(key for key in data if key.startswith(starts)))
        self.ignore(*_IGNORED)
        usual = self.text("projector_type", default="mlp")
        name = self.text(f"{tower}.projector_type", default=usual)
        if name != type_:
            raise OtherFamily(
                f"clip.projector_type: got {name!r:.80}, expected {type_}; specify the projector "
                "of this model with --mmproj"
            )
        flags = {f"has_{tower}_encoder": True}
        if tower == "vision" and activation is not None:
            flags |= {f"use_{name}": name == activation for name in ("gelu", "silu")}
        for key, expected in flags.items():
            if self.flag(key, default=expected) != expected:
                raise ConfigError(f"clip.{key} is {not expected}, supported is {expected}")

    def finish(self) -> None:
        """Raise ConfigError for keys that were not asked for."""
        if unknown := sorted(self._data.keys() - self._read):
            raise ConfigError(
                f"clip.*: unknown key {', '.join(unknown):.200}: it may change what the tower "
                "computes"
            )
