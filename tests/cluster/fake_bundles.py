"""Bundles without files: a fake runtime with a fixed step time, in the processes of Ray."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.sampling.options import SamplingOptions
from hearthd.server.cluster.bundles import Bundle, Bundles, TextParts
from hearthd.server.engine.generation import Request
from hearthd.server.engine.prompt import Prompt
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.services.service import fingerprint
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes, templates

if TYPE_CHECKING:
    from collections.abc import Mapping

LIBRARY = fakes.gemma_like(special=(*templates.GEMMA_SPECIAL, *templates.CHATML_SPECIAL))


@dataclass(frozen=True)
class FakeBundles(Bundles):
    """Opens the bundle of a FakeRuntime with these fields, and a prefix cache of `cache_ram`.

    The fields of the runtime take the place of a folder in the id of a bundle, so an opener with
    other fields opens the same bundle.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    cache_ram: int = 2**24
    template: str = templates.GEMMA

    def describe(self, name: str = "fake-model") -> Bundle:
        """The bundle, under this name."""
        runtime = _runtime(self.fields)
        return Bundle(
            id=f"{fingerprint(fakes.manifest_of(runtime))}:{json.dumps(self.fields)}",
            name=name,
            slots=runtime.slots,
            chunk=runtime.chunk,
            memory=0,
        )

    @override
    def open_model(self, bundle: Bundle) -> LocalLanguageService:
        runtime = _runtime_of(bundle)
        tokenizer, template = self._text(runtime)
        return LocalLanguageService(
            runtime,
            tokenizer,
            fakes.manifest_of(runtime),
            EngineOptions(cache_ram=self.cache_ram, speculation="off"),
            name=bundle.name,
            template=template,
        )

    @override
    def open_text(self, bundle: Bundle) -> TextParts:
        runtime = _runtime_of(bundle)
        return TextParts(fakes.manifest_of(runtime), *self._text(runtime))

    def with_fields(self, **fields: Any) -> FakeBundles:
        """The bundles of a runtime with these other fields."""
        return dataclasses.replace(self, fields={**self.fields, **fields})

    def _text(self, runtime: FakeRuntime) -> tuple[Tokenizer, ChatTemplate]:
        tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS, context=runtime.context)
        return tokenizer, ChatTemplate(self.template, tokenizer, eos=fakes.EOS)

    def request(self, body: Mapping[str, Any], seed: int) -> Request:
        """The engine's request for the body of a request to /generate, with this seed."""
        return Request(
            prompt=Prompt(tuple(body["prompt"])),
            max_tokens=body["max_tokens"],
            sampling=SamplingOptions(),
            seed=seed,
        )


def _runtime_of(bundle: Bundle) -> FakeRuntime:
    return _runtime(json.loads(bundle.id.partition(":")[2]))


def _runtime(fields: Mapping[str, Any]) -> FakeRuntime:
    values = {"context": 256, "slots": 4, "batch": 4, **fields}
    return FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), **values)
