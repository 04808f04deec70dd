"""The model that a request names, and the service that answers it.

A model is named by the field `model` of the JSON body. Routes without such a body have a query
parameter `model`. The service is held until the last byte of the response is sent.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

from fastapi import Depends, Query, Request

from server.api.disconnect import unless_disconnected, whole_body
from server.services.array_service import ArrayService
from server.services.deployment import Deployment
from server.services.encoder_service import EncoderService
from server.services.language_service import LanguageService
from server.services.model_pool import ModelPool

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from server.services.model_kind import Kind
    from server.services.service import Service


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


async def _named(request: Request, *kinds: Kind) -> Service:
    """The service of the model that the body names, which must be of one of these kinds."""
    name = None
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        # FastAPI has parsed the body, so this does not parse it again. It rejects a body that is
        # not an object, and a name that is not a string.
        name = (await request.json()).get("model")
    name = name if isinstance(name, str) else ""
    deployment = (await _pool(request)).find(name, *kinds)
    return await lease(request, deployment)


async def _language_service(request: Request) -> LanguageService:
    return cast("LanguageService", await _named(request, "language"))


async def _embedder(request: Request) -> Embedder:
    return cast("Embedder", await _named(request, "language", "encoder"))


async def _encoder(request: Request) -> EncoderService:
    return cast("EncoderService", await _named(request, "encoder"))


async def _array_service(request: Request, model: ModelName = "") -> ArrayService:
    deployment = (await _pool(request)).find(model, "arrays")
    return cast("ArrayService", await lease(request, deployment))


async def lease(request: Request, deployment: Deployment) -> Service:
    """The service of a model for this request, which waits if the model must be loaded.

    Raises what ModelPool.lease raises, and ClientDisconnected.
    """
    pool = await _pool(request)
    held = pool.lease_now(deployment)
    if held is None:
        await whole_body(request)  # what comes after it is the disconnect
        held = await unless_disconnected(request, pool.lease(deployment))
    leases: contextlib.ExitStack = request.state.leases
    return leases.enter_context(held)


CurrentLanguageService = Annotated[LanguageService, Depends(_language_service)]
CurrentEmbedder = Annotated[Embedder, Depends(_embedder)]
CurrentEncoder = Annotated[EncoderService, Depends(_encoder)]
CurrentArrayService = Annotated[ArrayService, Depends(_array_service)]
NamedModel = Annotated[Deployment, Depends(_deployment)]
Pool = Annotated[ModelPool, Depends(_pool)]
