"""A model replica: the engines of one or several bundles, in a process that Ray starts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ray import serve

from hearthd.server import logs
from hearthd.server.cluster.cached_blocks import BundleStats
from hearthd.server.cluster.work import shortened, with_age
from hearthd.server.engine.generation import Failed
from hearthd.server.errors import GenerationFailed, QueueFull, Unavailable
from hearthd.server.fault_isolation import contained
from hearthd.server.services.array_service import ArrayService
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.grammars.answer_constraint import Constraints

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from hearthd.runtime.checks.self_test import Verdict
    from hearthd.server.cluster.bundles import Bundle, Bundles
    from hearthd.server.cluster.work import FunctionCall, Work
    from hearthd.server.engine.array_calls import Called
    from hearthd.server.engine.generation import Event
    from hearthd.server.services.service import Service
    from hearthd.server.settings import Settings

_UNLOAD_INTERVAL = 0.05  # seconds between checks whether a bundle still has requests


class TryAgain(Exception):
    """The replica cannot serve this request now; another replica may."""


class CannotServe(Exception):
    """The bundle failed its self-test on this machine."""


class LoadedBundle:
    """A bundle that is served, and the constraints of its requests.

    `on_unload` is called once, in any thread, before the engine ends.
    """

    def __init__(self, service: Service, on_unload: Callable[[], object]) -> None:
        self.service = service
        self.constraints = _constraints(service)
        self._on_unload: Callable[[], object] | None = on_unload

    def __del__(self) -> None:
        """Called by Ray, in a thread, to unload the bundle, and by Python at the end."""
        on_unload, self._on_unload = self._on_unload, None
        if on_unload is None:
            return
        with contained("the unload of a bundle"):  # the load of another bundle waits for it
            on_unload()
            while not self.service.idle:
                time.sleep(_UNLOAD_INTERVAL)
            asyncio.run(self.service.stop())


class ModelReplica:
    """Serves work for the bundles that it has loaded, at most `max_bundles` of them.

    The `bundles` are loaded at the start. Another one is loaded for the first request for it, and
    the least recently used one unloaded for it.
    """

    def __init__(
        self, opener: Bundles, settings: Settings, bundles: Sequence[Bundle], *, max_bundles: int
    ) -> None:
        logs.configure(settings.log_level, settings.log_format)
        self._opener = opener
        self._known = {bundle.id: bundle for bundle in bundles}
        # Those that are loaded. Unloading removes them in another thread.
        self._services: dict[str, Service] = {}

        async def load(bundle_id: str) -> LoadedBundle:
            return await self._open(bundle_id)

        self._load = serve.multiplexed(max_num_models_per_replica=max_bundles)(load)
        self._first = list(bundles[:max_bundles])

    async def generate(self, work: Work, bundle: Bundle) -> AsyncIterator[list[Event]]:
        """The events of a request, with ages; raises TryAgain. Cancelled when the client leaves."""
        loaded = await self._get(bundle)
        service = loaded.service
        assert isinstance(service, LocalLanguageService), "other bundles get calls"
        # A thread of its own takes time; only rules can take longer.
        request = work.request
        if work.rules is not None:
            assert loaded.constraints is not None, "a language model has them"
            request = await asyncio.to_thread(work.engine_request, loaded.constraints)
        try:
            generation = service.engine.submit(request)
        except (QueueFull, Unavailable) as error:
            raise TryAgain(str(error)) from None
        with generation:
            async for events in generation.batches():
                yield [with_age(event) for event in events]

    async def call(self, call: FunctionCall, bundle: Bundle) -> Called | Failed:
        """Run an array function; raises TryAgain. Cancelled when the client leaves."""
        service = (await self._get(bundle)).service
        assert isinstance(service, ArrayService), "a language model gets work"
        try:
            return await service.calls.submit(call.function, call.inputs)
        except (QueueFull, Unavailable) as error:
            raise TryAgain(str(error)) from None
        except GenerationFailed as error:
            return Failed(str(error))

    async def verdict(self, bundle: Bundle) -> Verdict:
        """The result of the bundle's self-test on this machine, which has passed."""
        verdict = (await self._get(bundle)).service.verdict
        assert verdict is not None, "it is loaded after the self-test"
        return verdict

    async def check_health(self) -> None:
        """Called by Ray, once before the first request and then every few seconds.

        The first call loads the bundles and raises BundleError or CannotServe. After an error Ray
        replaces the replica.
        """
        while self._first:
            await self._get(self._first.pop(0))
        for service in list(self._services.values()):
            if problem := service.unavailable():
                raise problem

    def record_routing_stats(self) -> Mapping[str, BundleStats]:
        """Called by Ray: what the routers of the fronts know about this replica, by bundle."""
        return {bundle_id: _stats(service) for bundle_id, service in list(self._services.items())}

    async def __del__(self) -> None:
        """Called by Ray after the last request, or when the time for it is over."""
        for service in list(self._services.values()):
            with contained("the end of a bundle"):
                await service.stop()

    async def _get(self, bundle: Bundle) -> LoadedBundle:
        self._known[bundle.id] = bundle
        loaded: LoadedBundle = await self._load(bundle.id)
        return loaded

    async def _open(self, bundle_id: str) -> LoadedBundle:
        """Open a bundle and test it; raises BundleError or CannotServe."""
        service = await asyncio.to_thread(self._opener.open_model, self._known[bundle_id])
        verdict = await service.start()
        if not verdict.passed:
            await service.stop()
            raise CannotServe(f"{bundle_id}: {verdict.message}")
        loaded = LoadedBundle(service, lambda: self._services.pop(bundle_id, None))
        self._services[bundle_id] = service
        return loaded


def _constraints(service: Service) -> Constraints | None:
    """What makes constraints of the rules of requests; None without a language model."""
    if not isinstance(service, LocalLanguageService):
        return None
    manifest = service.manifest
    ends = manifest.special_tokens.eos
    return Constraints(service.tokenizer, vocab_size=manifest.vocab_size, ends=ends)


def _stats(service: Service) -> BundleStats:
    if isinstance(service, LocalLanguageService):
        blocks = frozenset(shortened(service.engine.cached_blocks()))
        return BundleStats(blocks=blocks, state=service.state())
    assert isinstance(service, ArrayService), "there are no other services"
    return BundleStats(blocks=frozenset(), state=service.calls.state())
