"""An architecture of encoders as the baker uses it. models/catalog.py finds the architectures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import ArchitectureFiles, C
from hearthd.models.encoder.encoder_entry_points import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.bundle import PairPrompt
    from hearthd.models.encoder.encoder_entry_points import Encoder, EncoderOptions
    from hearthd.models.program import ArraysProgram


@dataclass(frozen=True, kw_only=True)
class EncoderArchitecture(ArchitectureFiles[C]):
    """An architecture of encoders.

    model        the model of a configuration
    pair_prompt  the text that a decoder reads for a pair; None: the tokenizer joins a pair
    """

    model: Callable[[C], Encoder]
    pair_prompt: PairPrompt | None = None

    def program(self, config: C, options: EncoderOptions) -> ArraysProgram:
        """The model's functions; raises TypeRuleError if the precision is not for this model."""
        return program(self.model(config), options)
