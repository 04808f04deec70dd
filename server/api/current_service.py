"""How a route comes by the service: a request goes to one bundle, whatever is served after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from server.services.array_service import ArraysService
from server.services.bundle_service import Served
from server.services.deployment import Deployment
from server.services.language_service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class OneBundle:
    """An ASGI middleware that gives each request the bundle that is served when it comes."""

    def __init__(self, app: ASGIApp, deployment: Deployment) -> None:
        self._app = app
        self._deployment = deployment

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        with self._deployment.request() as service:
            state["service"] = service
            try:
                await self._app(scope, receive, send)
            finally:
                # A connection keeps its latest scope, and would keep the bundle in memory.
                del state["service"]


# Async, for FastAPI runs what is not in a thread, for every request.
async def _service(request: Request) -> Service:
    return cast("Service", request.state.service)


async def _array_service(request: Request) -> ArraysService:
    return cast("ArraysService", request.state.service)


async def _served(request: Request) -> Served:
    return cast("Served", request.state.service)


async def _deployment(request: Request) -> Deployment:
    return cast("Deployment", request.app.state.deployment)


# A language model, a program of functions on arrays, and whichever of them it is.
Serving = Annotated[Service, Depends(_service)]
ServingArrays = Annotated[ArraysService, Depends(_array_service)]
ServingAny = Annotated[Served, Depends(_served)]
Deployed = Annotated[Deployment, Depends(_deployment)]
