"""A front: the application of `hearth serve`, with model replicas in place of the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ray import serve

from hearthd.bundle import ArraysManifest, EncoderManifest, LanguageManifest
from hearthd.server import logs
from hearthd.server.api.stored.store import Store
from hearthd.server.cluster.remote_calls import RemoteCalls
from hearthd.server.cluster.remote_engine import RemoteEngine
from hearthd.server.errors import NotReloaded
from hearthd.server.lora.fixed_adapters import FixedAdapters
from hearthd.server.process.lazy_imports import build_models_lazily
from hearthd.server.services.array_service import ArrayService
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.encoder_service import EncoderService
from hearthd.server.services.language_service import LanguageService, image_fetcher
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.setting_files import read_keys
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.serve.handle import DeploymentHandle
    from starlette.types import ASGIApp

    from hearthd.server.cluster.bundles import Bundle, Bundles, TextParts
    from hearthd.server.services.service import Service
    from hearthd.server.settings import Settings

_VERDICT_INTERVAL = 0.05  # seconds between checks whether the self-test is known


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
        self._settings = settings
        self._services = [
            _service(handle, bundle, opener.open_text(bundle), settings) for bundle in bundles
        ]

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray."""
        build_models_lazily()
        from hearthd.server.app import Guards, create_app

        settings = self._settings
        guards = Guards(
            api_keys=read_keys(settings),
            cors_origins=settings.cors_origins,
            strict_fields=settings.strict_fields,
            slots=settings.slots,
            share_cache=settings.share_cache,
        )
        pool = ModelPool(
            map(_deployed, self._services),
            max_body_bytes=settings.max_body_bytes,
            pinned=[service.name for service in self._services],
        )
        store = Store(settings.state_dir, limit=settings.state_size)
        return create_app(pool, guards=guards, webui=settings.webui, store=store)

    async def check_health(self) -> None:
        """Called by Ray; the first call returns when requests are accepted."""
        while any(service.verdict is None for service in self._services):
            await asyncio.sleep(_VERDICT_INTERVAL)


FRONT = serve.ingress()(Front)


def _service(
    handle: DeploymentHandle[Any], bundle: Bundle, parts: TextParts, settings: Settings
) -> Service:
    """The service of a bundle that model replicas compute. Its self-test is a replica's."""
    limit, name, level = settings.queue_limit, bundle.name, settings.self_test
    program = bundle.program
    match parts.manifest, parts.tokenizer:
        case LanguageManifest() as manifest, Tokenizer() as tokenizer:
            engine = RemoteEngine(handle, bundle, queue_limit=limit)
            return LanguageService(
                engine,
                engine.self_test,
                tokenizer,
                manifest,
                FixedAdapters(bundle.adapters),
                name=name,
                template=parts.template,
                level=level,
                program=program,
                context=bundle.context,
                overflow=settings.overflow,
                fetcher=image_fetcher() if settings.fetch_images else None,
                sampling=settings.sampling,
            )
        case EncoderManifest() as manifest, Tokenizer() as tokenizer:
            calls = RemoteCalls(handle, bundle, queue_limit=limit)
            return EncoderService(
                calls,
                calls.self_test,
                manifest,
                tokenizer,
                name=name,
                level=level,
                program=program,
            )
        case ArraysManifest() as manifest, None:
            calls = RemoteCalls(handle, bundle, queue_limit=limit)
            return ArrayService(
                calls, calls.self_test, manifest, name=name, level=level, program=program
            )
    raise AssertionError("a bundle has one of these kinds")


def _deployed(service: Service) -> Deployment:
    deployment = Deployment(service.name, _refuse_reload)
    deployment.serve(service)
    return deployment


def _refuse_reload(_reserved: int) -> Service:
    raise NotReloaded("bundle: change it in the Serve config and run `serve deploy`")
