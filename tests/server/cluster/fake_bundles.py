"""Bundles without files: a fake runtime with a fixed step time, in the processes of Ray."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from server.cluster.bundles import Bundle, TextParts
from server.services.language_service import EngineOptions, LocalLanguageService
from server.text.chat_template import ChatTemplate
from server.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes, templates

LIBRARY = fakes.gemma_like(special=(*templates.GEMMA_SPECIAL, *templates.CHATML_SPECIAL))


@dataclass(frozen=True)
class FakeBundles:
    """Opens the bundle of a FakeRuntime with these fields, and a prefix cache of `cache_ram`."""

    fields: dict[str, Any] = field(default_factory=dict)
    cache_ram: int = 2**24
    template: str = templates.GEMMA

    def describe(self, name: str = "fake-model") -> Bundle:
        runtime = self._runtime()
        return Bundle(
            id=f"{name}:/nowhere", name=name, slots=runtime.slots, chunk=runtime.chunk, memory=0
        )

    def open_model(self, bundle: Bundle) -> LocalLanguageService:
        parts = self.open_text(bundle)
        return LocalLanguageService(
            self._runtime(),
            parts.tokenizer,
            parts.manifest,
            EngineOptions(cache_ram=self.cache_ram, speculation="off"),
            name=bundle.name,
            template=parts.template,
        )

    def open_text(self, bundle: Bundle) -> TextParts:  # noqa: ARG002 - as Bundles.open_text
        runtime = self._runtime()
        tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS, context=runtime.context)
        template = ChatTemplate(self.template, tokenizer, eos=fakes.EOS)
        return TextParts(fakes.manifest_of(runtime), tokenizer, template)

    def _runtime(self) -> FakeRuntime:
        fields = {"context": 256, "slots": 4, "batch": 4, **self.fields}
        return FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), **fields)
