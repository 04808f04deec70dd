"""The service that a route uses: the bundle that was served when the request arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from server.services.array_service import ArrayService
from server.services.deployment import Deployment
from server.services.language_service import LanguageService
from server.services.service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class ServicePerRequest:
    """ASGI middleware: give each request the service that is current when it arrives."""

    def __init__(self, app: ASGIApp, deployment: Deployment) -> None:
        self._app = app
        self._deployment = deployment

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        with self._deployment.request() as service:
            state["service"] = service
            try:
                await self._app(scope, receive, send)
            finally:
                # A connection keeps its last scope, which would keep the bundle in memory.
                del state["service"]


# Async, because FastAPI runs functions that are not async in a thread.
async def _language_service(request: Request) -> LanguageService:
    return cast("LanguageService", request.state.service)


async def _array_service(request: Request) -> ArrayService:
    return cast("ArrayService", request.state.service)


async def _service(request: Request) -> Service:
    return cast("Service", request.state.service)


async def _deployment(request: Request) -> Deployment:
    return cast("Deployment", request.app.state.deployment)


CurrentLanguageService = Annotated[LanguageService, Depends(_language_service)]
CurrentArrayService = Annotated[ArrayService, Depends(_array_service)]
CurrentService = Annotated[Service, Depends(_service)]
Deployed = Annotated[Deployment, Depends(_deployment)]
