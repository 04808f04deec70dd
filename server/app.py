"""The application: routes, errors and a service, put together.

Importing this loads neither the baker, nor the model DSL, nor a compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from fastapi import FastAPI

from server import web
from server.api import (
    chat,
    completions,
    embeddings,
    errors,
    generate,
    models,
    responses,
    status,
    tokens,
)
from server.service import Service, version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from server.runtime.selftest import Verdict


def create_app(service: Service, *, on_verdict: Callable[[Verdict], None]) -> FastAPI:
    """The ASGI application that serves a service.

    Its lifespan starts and stops the service. The self-test runs while the application already
    answers (with 503); `on_verdict` is called with its result.
    """

    async def start() -> None:
        on_verdict(await service.start())

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(start())
        try:
            yield
            await starting
        finally:
            await service.stop()

    app = FastAPI(title="Hearth", version=version(), lifespan=lifespan)
    app.state.service = service
    errors.install(app)
    for surface in (generate, completions, chat, responses, embeddings, models, tokens, status):
        app.include_router(surface.router)
    app.include_router(web.router())
    return app
