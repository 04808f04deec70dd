"""The architectures that Hearth runs, by name: the record of each module of models/families."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, TypeVar

from hearthd.models import families
from hearthd.models.decoder.architecture import (
    Architecture,
    ArchitectureFiles,
    AssistantArchitecture,
)
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.speech.speech_architecture import SpeechArchitecture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

A = TypeVar("A", bound=ArchitectureFiles[Any])


def _records() -> Iterator[ArchitectureFiles[Any]]:
    for module_info in pkgutil.iter_modules(families.__path__, f"{families.__name__}."):
        module = importlib.import_module(module_info.name)
        if hasattr(module, "ARCHITECTURE"):  # gru.py has none: it is an array function
            yield module.ARCHITECTURE


_RECORDS = tuple(_records())


def _of_kind(kind: type[A]) -> Mapping[str, A]:
    return {record.name: record for record in _RECORDS if type(record) is kind}


ARCHITECTURES: Mapping[str, Architecture[Any]] = _of_kind(Architecture)
ASSISTANTS: Mapping[str, AssistantArchitecture[Any]] = _of_kind(AssistantArchitecture)
ENCODERS: Mapping[str, EncoderArchitecture[Any]] = _of_kind(EncoderArchitecture)
# Architectures of models that read texts.
TEXT: Mapping[str, Architecture[Any] | EncoderArchitecture[Any]] = {**ARCHITECTURES, **ENCODERS}
SPEECH: Mapping[str, SpeechArchitecture[Any]] = _of_kind(SpeechArchitecture)
