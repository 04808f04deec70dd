"""A language model that is served: what its routes share.

It knows the layers below it (text, engine, runtime) and no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from typing_extensions import override

from hearthd.bundle import (
    CHAT_TEMPLATE,
    TOKENIZER,
    Admitted,
    LanguageManifest,
    read_manifest_of,
)
from hearthd.runtime.checks.self_test import GoldenValues, self_test_language
from hearthd.runtime.iree.device import start_threads
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.open_bundle import check_and_load
from hearthd.runtime.system.free_memory import free_memory
from hearthd.server.completions.choices import Choices
from hearthd.server.completions.completer import Completer
from hearthd.server.engine.backend import Backend, Worker
from hearthd.server.engine.drafting.drafts import costs_of
from hearthd.server.engine.engine import Engine
from hearthd.server.images.rendering import ConversationRenderer
from hearthd.server.logs import count_tokens
from hearthd.server.lora.loaded_adapters import LoadedAdapters
from hearthd.server.metrics import LanguageMetrics
from hearthd.server.process.memory_limit import admit
from hearthd.server.process.streamed_experts import expert_memory
from hearthd.server.services.engine_options import DEFAULT_OPTIONS, EngineOptions
from hearthd.server.services.prefix_caches import prefix_cache, prefix_store
from hearthd.server.services.request_defaults import request_defaults
from hearthd.server.services.service import Description, Service, fingerprint
from hearthd.text.errors import InvalidRequest
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hearthd.bundle import ProgramFile
    from hearthd.runtime.checks.self_test import Level, Verdict
    from hearthd.runtime.interface import Runtime
    from hearthd.server.completions.completion import Completion
    from hearthd.server.engine.generation import AdapterUse
    from hearthd.server.engine.state import EngineState
    from hearthd.server.images.fetching import ImageFetcher
    from hearthd.server.images.read_media import ReadMedia
    from hearthd.server.lora.adapters import Adapter, Adapters
    from hearthd.text.answer import EmbeddedText, Ended
    from hearthd.text.conversation import Conversation, Media
    from hearthd.text.overflow import Overflow
    from hearthd.text.templates.chat_template import ChatTemplate
    from hearthd.text.templates.prompt import Prompt
    from hearthd.text.text_request import TextRequest

    ReadImages: TypeAlias = dict[Media, ReadMedia]  # of a request, so far


class LanguageBackend(Backend, Worker, Protocol):
    """The worker of a language model."""


class LanguageService(Service):
    """The language model of one bundle: its text layer, and the backend that computes tokens.

    `context` are the positions of a slot, None for all of the bundle's; `overflow` as in Completer.
    With a `fetcher`, images may be at addresses. `sampling` replaces defaults of the bundle.
    """

    manifest: LanguageManifest
    metrics: LanguageMetrics
    _adapter: AdapterUse | None = None
    _owner = ""

    def __init__(
        self,
        backend: LanguageBackend,
        self_test: Callable[[], Verdict],
        tokenizer: Tokenizer,
        manifest: LanguageManifest,
        adapters: Adapters,
        *,
        name: str | None,
        template: ChatTemplate | None,
        level: Level,
        program: ProgramFile | None = None,
        context: int | None = None,
        overflow: Overflow = "error",
        fetcher: ImageFetcher | None = None,
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.adapters = adapters
        self.context = manifest.context if context is None else context
        self.tokenizer = tokenizer
        self.sampling = {**request_defaults(manifest), **sampling}
        self._template = template
        self._backend = backend
        self.renderer = ConversationRenderer(manifest, tokenizer, fetcher)
        self._completer = Completer(
            backend,
            tokenizer,
            vocab_size=manifest.vocab_size,
            context=self.context,
            eos=manifest.special_tokens.eos,
            suppressed=manifest.suppressed_tokens,
            pooling=manifest.pooling,
            overflow=overflow,
        )
        super().__init__(manifest, backend, self_test, name=name, level=level, program=program)
        self.metrics = LanguageMetrics(
            state=self.state, verdict=lambda: self.verdict, info=self.facts
        )

    @property
    @override
    def description(self) -> Description:
        state, special, name = self.state(), self.manifest.special_tokens, self.tokenizer.name
        return Description(
            slots=len(state.slots),
            context=self.context,
            queue_limit=state.queue_limit,
            chat_template=self._template.source if self._template else "",
            bos="" if special.bos is None else name(special.bos),
            eos=name(special.eos[0]) if special.eos else "",
            sampling=self.sampling,
        )

    @property
    def embedding_width(self) -> int:
        """The number of values of an embedding."""
        return self.manifest.hidden

    def state(self) -> EngineState:
        """The current state of slots, queue and prefix cache."""
        return self._backend.state()

    def with_adapter(self, adapter: Adapter, scale: float) -> LanguageService:
        """This service for the requests that use an adapter with a scale."""
        adapted = copy.copy(self)
        adapted._adapter = use = adapter.use(scale)
        adapted.name = f"{self.name}:{adapter.name}"
        adapted.fingerprint = fingerprint(self.manifest, self.program, use.key)
        return adapted

    def for_owner(self, owner: str) -> LanguageService:
        """This service for the requests of a client that shares no cache entries with others."""
        owned = copy.copy(self)
        owned._owner = owner
        return owned

    async def complete(self, request: TextRequest) -> Completion:
        """Accept a request; raises InvalidRequest, QueueFull or Unavailable."""
        if problem := self.unavailable():
            raise problem
        return await self._completer.begin(request, self._ended, self._adapter, self._owner)

    async def embed(self, text: str | tuple[int, ...], field: str) -> EmbeddedText:
        """Compute the embedding of a text or of token ids; errors name the request's `field`.

        Raises what `complete` raises, GenerationFailed, and Draining if the server stops.
        """
        if problem := self.unavailable():
            raise problem
        embedding = await self._completer.embed(text, field, self._adapter)
        self.metrics.embedded(embedding.tokens)
        return embedding

    async def embed_all(
        self, texts: Sequence[tuple[str, str | tuple[int, ...]]]
    ) -> list[EmbeddedText]:
        """Embed texts with the fields of the request that they are from; raises as `embed`.

        One after the other, so that a long list takes one place in the queue.
        """
        return [await self.embed(text, field) for field, text in texts]

    async def complete_all(
        self, requests: Sequence[TextRequest], *, answers_per_prompt: int = 1
    ) -> Choices:
        """Accept all requests or none; raises what `complete` raises.

        InvalidRequest if they can never be accepted together: a client must not retry. It names the
        field `n` if one prompt has them all.
        """
        if len(requests) > (capacity := self._backend.capacity):
            raise InvalidRequest(
                field="n" if len(requests) == answers_per_prompt else requests[0].field,
                got=f"{len(requests)} answers",
                expected=f"at most {capacity}, the slots and --queue-limit together",
            )
        with contextlib.ExitStack() as accepted:
            choices = Choices(
                [accepted.enter_context(await self.complete(request)) for request in requests]
            )
            accepted.pop_all()
        return choices

    @property
    def has_template(self) -> bool:
        """Whether the bundle has a chat template."""
        return self._template is not None

    @property
    def template(self) -> ChatTemplate:
        """The bundle's chat template; raises InvalidRequest if it has none."""
        if self._template is None:
            raise InvalidRequest(
                field="messages",
                got="a conversation",
                expected="a prompt, in /v1/completions: this bundle has no chat template",
            )
        return self._template

    async def render(
        self, conversation: Conversation, read: ReadImages | None = None, /, **options: Any
    ) -> Prompt:
        """The prompt for a conversation, as ConversationRenderer.render makes it."""
        return await self.renderer.render(self.template, conversation, read, **options)

    def _ended(self, ended: Ended) -> None:
        self.metrics.completed(ended)
        count_tokens(ended.prompt_tokens, len(ended.token_times))


class LocalLanguageService(LanguageService):
    """A language model whose engine runs in this process."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        manifest: LanguageManifest,
        options: EngineOptions = DEFAULT_OPTIONS,
        *,
        name: str | None = None,
        template: ChatTemplate | None = None,
        level: Level = "quick",
        program: ProgramFile | None = None,
    ) -> None:
        self._runtime = runtime
        self._store = prefix_store(manifest, options, program)
        self.engine = Engine(
            runtime,
            eos=manifest.special_tokens.eos,
            queue_limit=options.queue_limit,
            exact_logits=options.exact_logits,
            cache=prefix_cache(manifest, runtime.context, options, self._store),
            image_row_bytes=manifest.image_row_memory,
            costs={} if options.speculation == "off" else costs_of(runtime),
            uses_drafter=options.speculation == "auto",
        )
        self._loaded = LoadedAdapters(
            manifest.adapters, self.engine, allowed=options.lora_dir, keys=options.keys
        )
        super().__init__(
            self.engine,
            _self_test_of(runtime, manifest, level),
            tokenizer,
            manifest,
            self._loaded,
            name=name,
            template=template,
            level=level,
            program=program,
            context=runtime.context,
            overflow=options.overflow,
            fetcher=image_fetcher() if options.fetch_images else None,
            sampling=options.sampling,
        )
        self.signed = bool(options.keys)

    def open_adapters(self, folders: Mapping[str, Path]) -> None:
        """Load adapters by name, before the service is started; raises CannotLoad."""
        self._loaded.open(folders, self._runtime)

    @override
    async def stop(self) -> None:
        """Also finish writing the prefix cache to disk."""
        await super().stop()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)


@functools.cache
def image_fetcher() -> ImageFetcher:
    """Downloads images of public hosts, for all models of the process."""
    from hearthd.server.images.fetching import ImageFetcher  # imports HTTP and TLS clients

    return ImageFetcher()


def _self_test_of(
    runtime: Runtime, manifest: LanguageManifest, level: Level
) -> Callable[[], Verdict]:
    """The self-test of a bundle.

    One that `hearth verify` did not compare with NumPy yet is served before: see --verify-later.
    """
    if level == "quick" and not manifest.golden:
        level = "off"
    return functools.partial(self_test_language, runtime, GoldenValues.of(manifest), level=level)


def open_language_service(
    bundle: Path,
    *,
    threads: int | None = None,
    name: str | None = None,
    options: EngineOptions = DEFAULT_OPTIONS,
    level: Level = "quick",
    chat_template: str | None = None,
    reserved: int = 0,
    mapped: bool = True,
) -> LocalLanguageService:
    """Open a bundle with a language model; raises BundleError or CannotStore.

    `threads` and `mapped` as in Device. `name` None means the folder's. `level` is of the
    self-test. `chat_template` replaces the bundle's. Other models take `reserved` bytes of memory.
    """
    manifest = read_manifest_of(bundle, LanguageManifest)

    def load(program: ProgramFile) -> tuple[Admitted, int, Tokenizer, IreeRuntime]:
        admitted, experts = _admit(bundle, manifest, options, reserved)
        start_threads(threads)
        # Before the weights: reading a tokenizer takes three times the memory that it keeps.
        opened = manifest.opened(slots=admitted.slots, context=admitted.context)
        tokenizer = open_tokenizer(bundle, opened)
        free_memory()
        runtime = IreeRuntime(
            bundle, opened, threads=threads, program=program, mapped=mapped, expert_memory=experts
        )
        return admitted, experts, tokenizer, runtime

    admitted, experts, tokenizer, runtime = check_and_load(
        bundle, manifest, load, level=level, keys=options.keys
    )
    service = LocalLanguageService(
        runtime,
        tokenizer,
        manifest,
        dataclasses.replace(options, cache_ram=admitted.prefix_cache),
        name=name or bundle.resolve().name,
        template=open_template(bundle, manifest, tokenizer, instead=chat_template),
        level=level,
        program=runtime.program,
    )
    memory = manifest.memory_of(service.context)
    cached = max(0, experts - manifest.footprint.token_experts)
    service.memory = memory.unshared(admitted.slots, admitted.prefix_cache) + cached
    service.open_adapters(options.lora)
    return service


def _admit(
    bundle: Path, manifest: LanguageManifest, options: EngineOptions, reserved: int
) -> tuple[Admitted, int]:
    """What fits in the memory beside the `reserved` bytes, and the bytes for streamed experts."""
    limit, models = options.max_memory, options.models
    admitted = admit(
        manifest,
        max_memory=limit,
        prefix_cache=options.cache_ram,
        context=options.context,
        reserved=reserved,
        models=models,
    )
    return admitted, expert_memory(bundle, manifest, admitted, limit, reserved, models)


def open_tokenizer(bundle: Path, manifest: LanguageManifest) -> Tokenizer:
    """The tokenizer of a bundle; raises BundleError."""
    return Tokenizer.from_file(
        bundle / TOKENIZER, bos=manifest.special_tokens.bos, context=manifest.context
    )


def open_template(
    bundle: Path, manifest: LanguageManifest, tokenizer: Tokenizer, *, instead: str | None = None
) -> ChatTemplate | None:
    """The chat template of a bundle, or None if it has none; raises BundleError.

    `instead` is the source of another template, used in place of the bundle's.
    """
    if instead is None and CHAT_TEMPLATE not in {record.name for record in manifest.files}:
        return None  # a template that was added to the folder later does not count
    from hearthd.text.templates.chat_template import ChatTemplate  # imports Jinja

    return ChatTemplate.from_bundle(bundle, tokenizer, manifest.special_tokens, instead=instead)
