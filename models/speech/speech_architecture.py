"""An architecture of speech as the baker uses it. models/catalog.py finds the architectures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import ArchitectureFiles, C
from hearthd.models.speech.speech_entry_points import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.speech.speech_entry_points import (
        SpeechModel,
        SpeechOptions,
        SpeechProgram,
    )


@dataclass(frozen=True, kw_only=True)
class SpeechArchitecture(ArchitectureFiles[C]):
    """An architecture of models of speech; `model` is the model of a configuration."""

    model: Callable[[C], SpeechModel]

    def program(self, config: C, options: SpeechOptions) -> SpeechProgram:
        """The model's functions; raises TypeRuleError if the precision is not for this model."""
        return program(self.model(config), options)
