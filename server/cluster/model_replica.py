"""A model replica: the engines of one or several bundles, in a process that Ray starts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ray import serve

from server import logs
from server.cluster.cached_blocks import BundleStats
from server.cluster.work import shortened, with_age
from server.errors import QueueFull, Unavailable
from server.text.grammars.answer_constraint import Constraints

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from runtime.self_test import Verdict
    from server.cluster.bundles import Bundle, Bundles
    from server.cluster.work import Work
    from server.engine.generation import Event
    from server.services.language_service import LocalLanguageService
    from server.settings import Settings

_UNLOAD_INTERVAL = 0.05  # seconds between checks whether a bundle still has requests


class TryAgain(Exception):
    """The replica cannot serve this request now; another replica may."""


class CannotServe(Exception):
    """The bundle failed its self-test on this machine."""


class LoadedBundle:
    """A bundle that is served, and the constraints of its requests.

    `on_unload` is called once, in any thread, before the engine ends.
    """

    def __init__(self, service: LocalLanguageService, on_unload: Callable[[], object]) -> None:
        manifest = service.manifest
        self.service = service
        self.constraints = Constraints(
            service.tokenizer, vocab_size=manifest.vocab_size, ends=manifest.special_tokens.eos
        )
        self._on_unload: Callable[[], object] | None = on_unload

    def __del__(self) -> None:
        """Called by Ray, in a thread, to unload the bundle, and by Python at the end."""
        on_unload, self._on_unload = self._on_unload, None
        if on_unload is not None:
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
        self._services: dict[str, LocalLanguageService] = {}  # those that are loaded

        async def load(bundle_id: str) -> LoadedBundle:
            return await self._open(bundle_id)

        self._load = serve.multiplexed(max_num_models_per_replica=max_bundles)(load)
        self._first = list(bundles[:max_bundles])

    async def generate(self, work: Work, bundle: Bundle) -> AsyncIterator[list[Event]]:
        """The events of a request, with ages; raises TryAgain. Cancelled when the client leaves."""
        loaded = await self._get(bundle)
        # A thread of its own takes time; only rules can take longer.
        request = work.request
        if work.rules is not None:
            request = await asyncio.to_thread(work.engine_request, loaded.constraints)
        try:
            generation = loaded.service.engine.submit(request)
        except (QueueFull, Unavailable) as error:
            raise TryAgain(str(error)) from None
        with generation:
            async for events in generation.batches():
                yield [with_age(event) for event in events]

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
        for service in self._services.values():
            if problem := service.unavailable():
                raise problem

    def record_routing_stats(self) -> Mapping[str, BundleStats]:
        """Called by Ray: what the routers of the fronts know about this replica, by bundle."""
        return {
            bundle_id: BundleStats(
                blocks=frozenset(shortened(service.engine.cached_blocks())),
                engine=service.state(),
            )
            for bundle_id, service in self._services.items()
        }

    async def __del__(self) -> None:
        """Called by Ray after the last request, or when the time for it is over."""
        for service in self._services.values():
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
