"""One ASGI application from those of several bundles: the field `model` of a request names one."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from server.api.openai.model_list import listed_models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

_BODY_METHODS = ("POST", "PUT", "PATCH")


class ByModel:
    """Calls the application of the model that a request names, or the first one.

    A model is named by the field `model` of a JSON body, or by the start of the path:
    `/NAME/v1/...` is `/v1/...` of that model. A body of more than `max_body_bytes` goes to the
    first application, which rejects it.
    """

    def __init__(self, apps: Mapping[str, FastAPI], max_body_bytes: int) -> None:
        self._apps = apps
        self._first = next(iter(apps.values()))
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] not in _BODY_METHODS:
            await self._first(scope, receive, send)
            return
        messages = await self._read(receive)
        app = self._apps.get(_model(messages), self._first)
        received = iter(messages)

        async def receive_again() -> Message:
            return next(received, None) or await receive()

        await app(scope, receive_again, send)

    async def _read(self, receive: Receive) -> list[Message]:
        messages, size = [await receive()], 0
        while messages[-1].get("more_body"):
            size += len(messages[-1]["body"])
            if size > self._max_body_bytes:
                break
            messages.append(await receive())
        return messages


def by_model(apps: Mapping[str, FastAPI], max_body_bytes: int) -> Starlette:
    """The application for several models, with the lifespans of all; see ByModel."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    async def models(_request: Request) -> Response:
        listed = listed_models(app.state.deployment.current for app in apps.values())
        return JSONResponse(listed.model_dump())

    return Starlette(
        routes=[
            Route("/v1/models", models),
            *(Mount(f"/{name}", app) for name, app in apps.items()),
            Mount("/", ByModel(apps, max_body_bytes)),
        ],
        lifespan=lifespan,
    )


def _model(messages: list[Message]) -> str:
    """The field `model` of a JSON body, or an empty string."""
    body = b"".join(message.get("body", b"") for message in messages)
    try:
        model = json.loads(body).get("model")
    except (ValueError, AttributeError, RecursionError):
        return ""  # the application rejects it
    return model if isinstance(model, str) else ""
