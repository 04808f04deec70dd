"""A front: the application of `hearth serve`, with model replicas in the place of the engine."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ray import serve

from server import logs
from server.cluster.remote_engine import RemoteEngine
from server.cluster.routers import router_of
from server.errors import NotReloaded
from server.process.lazy_imports import build_models_lazily
from server.services.deployment import Deployment
from server.services.language_service import LanguageService
from server.services.model_pool import ModelPool
from server.setting_files import read_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.serve.handle import DeploymentHandle
    from starlette.types import ASGIApp

    from runtime.self_test import Verdict
    from server.cluster.bundles import Bundle, Bundles, TextParts
    from server.settings import Settings

log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS = 1.0
_VERDICT_INTERVAL = 0.05  # seconds between checks whether the self-test is known


class ClusterService(LanguageService):
    """A language model whose engines run in model replicas. Its self-test is that of a replica."""

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        bundle: Bundle,
        parts: TextParts,
        settings: Settings,
        engine: RemoteEngine,
    ) -> None:
        self._verdict_of = handle.options(multiplexed_model_id=bundle.id).verdict
        self._bundle = bundle
        self._stopping = False
        super().__init__(
            engine,
            parts.tokenizer,
            parts.manifest,
            name=bundle.name,
            template=parts.template,
            level=settings.self_test,
        )

    async def start(self) -> Verdict:
        """See Service.start."""
        self._loop = asyncio.get_running_loop()
        return await super().start()

    async def stop(self) -> None:
        """See Service.stop."""
        self._stopping = True
        await super().stop()

    def _self_test(self) -> Verdict:
        return asyncio.run_coroutine_threadsafe(self._first_verdict(), self._loop).result()

    async def _first_verdict(self) -> Verdict:
        """The verdict of the first replica that has one; waits as long as there is none."""
        while True:
            try:
                verdict: Verdict = await self._verdict_of.remote(self._bundle)
            except Exception as error:
                log.warning("no replica has passed the self-test yet: %s", error)
                if self._stopping:
                    raise
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            else:
                return verdict


class Front:
    """Answers HTTP. Ray calls the ASGI application that `__serve_build_asgi_app__` returns."""

    def __init__(
        self,
        opener: Bundles,
        settings: Settings,
        bundles: Sequence[Bundle],
        handle: DeploymentHandle[Any],
    ) -> None:
        """Open the text layers of the bundles; raises BundleError or BadSettings."""
        logs.configure(settings.log_level, settings.log_format)
        names = handle.deployment_name, handle.app_name
        self._settings = settings
        self._services = []
        for bundle in bundles:
            engine = RemoteEngine(
                handle,
                bundle,
                queue_limit=settings.queue_limit,
                router=lambda: router_of(*names),
            )
            parts = opener.open_text(bundle)
            self._services.append(ClusterService(handle, bundle, parts, settings, engine))

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray."""
        build_models_lazily()
        from server.app import Guards, create_app

        settings = self._settings
        guards = Guards(
            api_keys=read_keys(settings),
            cors_origins=settings.cors_origins,
            max_body_bytes=settings.max_body_bytes,
            strict_fields=settings.strict_fields,
            slots=settings.slots,
        )
        pool = ModelPool(map(_deployed, self._services), pinned=[s.name for s in self._services])
        return create_app(pool, guards=guards, webui=settings.webui)

    async def check_health(self) -> None:
        """Called by Ray; the first call returns when requests are accepted."""
        while any(service.verdict is None for service in self._services):
            await asyncio.sleep(_VERDICT_INTERVAL)


FRONT = serve.ingress()(Front)


def _deployed(service: ClusterService) -> Deployment:
    deployment = Deployment(service.name, _refuse_reload)
    deployment.serve(service)
    return deployment


def _refuse_reload(_reserved: int) -> LanguageService:
    raise NotReloaded("bundle: change it in the Serve config and run `serve deploy`")
