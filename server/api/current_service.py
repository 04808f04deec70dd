"""The model that a request names, and the service that answers it.

A model is named by the field `model` of the JSON body, an adapter by `model:adapter` or the field
`lora`. They are looked up when the body has been validated. Routes without such a body have a query
parameter `model`. Both are held until the last byte of the response is sent.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from fastapi import Depends, Query, Request

from hearthd.bundle import LanguageManifest
from hearthd.server.api.disconnect import unless_disconnected, whole_body
from hearthd.server.api.middleware.api_keys import owner_of
from hearthd.server.logs import current_request
from hearthd.server.lora.adapters import require_one
from hearthd.server.services.array_service import ArrayService
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.encoder_service import EncoderService
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.model_pool import LATEST, ModelPool
from hearthd.server.services.request_defaults import request_defaults
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hearthd.bundle import EncoderManifest
    from hearthd.server.api.fields import ModelFields
    from hearthd.server.lora.adapters import Adapter, Adapters
    from hearthd.server.services.model_kind import Kind
    from hearthd.server.services.service import Service
    from hearthd.server.services.speech_service import SpeechService


Embedder: TypeAlias = LanguageService | EncoderService
ModelName = Annotated[
    str,
    Query(
        description="Name of a model in /v1/models; the first one by default. A server with one "
        "model ignores it."
    ),
]


class Leases:
    """ASGI middleware: keep the services that a request uses until its response is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with contextlib.ExitStack() as leases:
            scope.setdefault("state", {})["leases"] = leases
            await self._app(scope, receive, send)


# Async, because FastAPI runs functions that are not async in a thread.
async def _pool(request: Request) -> ModelPool:
    return cast("ModelPool", request.app.state.pool)


async def _deployment(request: Request, model: ModelName = "") -> Deployment:
    return (await _pool(request)).find(model)


async def language_service(request: Request, body: ModelFields) -> LanguageService:
    """The language model that a body names, with the adapter that it chooses.

    The body takes the model's defaults. Raises ModelNotFound, InvalidRequest, and what `lease`
    raises.
    """
    deployment, adapter = (await _pool(request)).find_adapted(body.model, "language")
    service = cast("LanguageService", await _lease_for(request, deployment, body))
    body.take_defaults(service.sampling)
    adapted = _adapted(service, request, adapter, body.adapter_scales)
    owner = "" if request.app.state.shares_cache else owner_of(request)
    return adapted.for_owner(owner) if owner else adapted


async def embedder(request: Request, body: ModelFields) -> Embedder:
    """The model of embeddings that a body names; raises as `language_service`."""
    deployment, adapter = (await _pool(request)).find_adapted(body.model, "language", "encoder")
    service = await _lease_for(request, deployment, body)
    if isinstance(service, LanguageService):
        return _adapted(service, request, adapter, body.adapter_scales)
    return _encoder(service, body, adapter)


async def encoder(request: Request, body: ModelFields) -> EncoderService:
    """The encoder that a body names; raises as `language_service`."""
    deployment, adapter = (await _pool(request)).find_adapted(body.model, "encoder")
    return _encoder(await _lease_for(request, deployment, body), body, adapter)


async def transcriber(request: Request, body: ModelFields) -> SpeechService | LanguageService:
    """The model that a body names and that writes what is said; raises as `language_service`.

    Without a name, a model of speech comes first: its transcripts have times.
    """
    pool = await _pool(request)
    others: tuple[Kind, ...] = ("listening",) if body.model or "speech" not in pool.kinds() else ()
    deployment, adapter = pool.find_adapted(body.model, "speech", *others)
    service = await _lease_for(request, deployment, body)
    if isinstance(service, LanguageService):
        return _adapted(service, request, adapter, body.adapter_scales)
    _without_adapter(body, adapter)
    return cast("SpeechService", service)


def _encoder(service: Service, body: ModelFields, adapter: str) -> EncoderService:
    _without_adapter(body, adapter)
    return cast("EncoderService", service)


def _without_adapter(body: ModelFields, adapter: str) -> None:
    if adapter not in ("", LATEST):
        raise InvalidRequest(field="model", got=body.model, expected="a model with adapters")


def _adapted(
    service: LanguageService, request: Request, name: str, scales: dict[int, float] | None
) -> LanguageService:
    """The service with the adapter that a request chooses, which stays loaded for it."""
    adapters = service.adapters
    if name and scales:
        raise InvalidRequest(
            field="lora", got=f"{len(scales)} adapters", expected="none: the model names one"
        )
    chosen = _chosen(adapters, name, scales)
    if chosen is None:
        return service
    leases: contextlib.ExitStack = request.state.leases
    users = chosen[0].users
    users.begin()
    leases.callback(users.end)
    return service.with_adapter(*chosen)


def _chosen(
    adapters: Adapters, name: str, scales: dict[int, float] | None
) -> tuple[Adapter, float] | None:
    if name and (name != LATEST or name in [adapter.name for adapter in adapters]):
        return adapters.named(name), 1.0
    if scales is None:
        return adapters.default()
    chosen = [(adapters.numbered(id_, "lora"), scale) for id_, scale in scales.items()]
    require_one([scale for _, scale in chosen], "lora")
    return next(((adapter, scale) for adapter, scale in chosen if scale), None)


async def _array_service(request: Request, model: ModelName = "") -> ArrayService:
    deployment = (await _pool(request)).find(model, "arrays")
    return cast("ArrayService", await lease(request, deployment))


async def _lease_for(request: Request, deployment: Deployment, body: ModelFields) -> Service:
    """As `lease`, for as long as the body asks."""
    service = await lease(request, deployment)
    if body.idle_timeout is not None:
        deployment.idle_timeout = body.idle_timeout
    return service


async def lease(request: Request, deployment: Deployment) -> Service:
    """The service of a model for this request, which waits if the model must be loaded.

    Raises what ModelPool.lease raises, and ClientDisconnected.
    """
    if record := current_request.get():
        record.model = deployment.name
    pool = await _pool(request)
    held = pool.lease_now(deployment)
    if held is None:
        await whole_body(request)  # what comes after it is the disconnect
        held = await unless_disconnected(request, pool.lease(deployment), is_answer=False)
    leases: contextlib.ExitStack = request.state.leases
    return leases.enter_context(held)


def served_context(deployment: Deployment, manifest: LanguageManifest | EncoderManifest) -> int:
    """The positions of a slot, as the model was opened the last time, or as its bundle has them."""
    description = deployment.description
    return manifest.context if description is None else description.context


def served_sampling(
    deployment: Deployment, manifest: LanguageManifest | EncoderManifest
) -> dict[str, Any]:
    """The defaults of requests to a model; once it was loaded, with the server's."""
    if deployment.description is not None:
        return dict(deployment.description.sampling)
    return request_defaults(manifest) if isinstance(manifest, LanguageManifest) else {}


CurrentArrayService = Annotated[ArrayService, Depends(_array_service)]
NamedModel = Annotated[Deployment, Depends(_deployment)]
Pool = Annotated[ModelPool, Depends(_pool)]
