"""Bundles of every kind without files: a language model with adapters, encoders and functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.cluster.bundles import Bundle, Bundles, TextParts
from hearthd.server.lora.loaded_adapters import read_adapters
from hearthd.server.services.encoder_service import EncoderService
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.service import fingerprint
from tests.server import adapter_folders, encoders, fakes, functions, templates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearthd.server.services.language_service import LocalLanguageService
    from hearthd.server.services.service import Service

LIBRARY = fakes.gemma_like(special=templates.GEMMA_SPECIAL)
CHUNK = 8
NAMES = ("language", "embedder", "reranker", "functions")


@dataclass(frozen=True)
class EveryKind(Bundles):
    """Opens the models in NAMES.

    `lora` are the folders of the language model's adapters by name, which has two places.
    """

    lora: Mapping[str, Path]

    def describe(self, name: str = "language") -> Bundle:
        """The bundle of a model."""
        adapters = tuple(one for one, _ in read_adapters(self.lora, adapter_folders.PLACES))
        return Bundle(
            id=f"{fingerprint(self.service(name).manifest)}:{name}",
            name=name,
            slots=2,
            chunk=CHUNK if name == "language" else 0,
            memory=0,
            adapters=adapters if name == "language" else (),
        )

    @override
    def open_model(self, bundle: Bundle) -> Service:
        return self.service(bundle.name)

    @override
    def open_text(self, bundle: Bundle) -> TextParts:
        service = self.service(bundle.name)
        if isinstance(service, LanguageService | EncoderService):
            return TextParts(service.manifest, service.tokenizer)
        return TextParts(service.manifest)

    def service(self, name: str) -> Service:
        """The service of a bundle, on one machine."""
        if name == "language":
            return self._language()
        service = (
            functions.service()
            if name == "functions"
            else encoders.service(scores=name == "reranker")
        )
        service.name = name
        return service

    def _language(self) -> LocalLanguageService:
        service = fakes.fake_service(
            LIBRARY,
            name="language",
            speculation="off",
            adapters=adapter_folders.PLACES,
            slots=2,
            batch=2,
            chunk=CHUNK,
        )
        service.open_adapters(self.lora)
        return service
