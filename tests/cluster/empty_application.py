"""An application that does nothing, on Ray Serve and in one process.

Its route /generate answers as a server with a fixed step time does. On Ray, the front gets each
event from a replica, as a front of Hearth does, but reads no request and computes nothing. The
difference between both is the least that Ray adds to the first token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import uvicorn
from ray import serve
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from server.process.listening import bind, url

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle
    from starlette.requests import Request
    from starlette.types import ASGIApp

_EVENTS = (
    b'data: {"token_ids": [5]}\n\n',
    b'data: {"finish_reason": "length", "seed": 0}\n\n',
)
_MAX_STREAMS = 100
Events: TypeAlias = Callable[[bytes], AsyncIterator[bytes]]


class EmptyReplica:
    """Waits in the place of an engine."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds

    async def generate(self, _work: Any) -> AsyncIterator[bytes]:
        """Each event after a step."""
        for event in _EVENTS:
            await asyncio.sleep(self._step_seconds)
            yield event


class EmptyFront:
    """Answers HTTP with the events of a replica."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle.options(stream=True)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray."""
        return _asgi_app(self._handle.generate.remote)


def _asgi_app(events: Events) -> ASGIApp:
    """Answers POST /generate with the events for its body."""

    async def generate(request: Request) -> StreamingResponse:
        return StreamingResponse(events(await request.body()), media_type="text/event-stream")

    return Starlette(routes=[Route("/generate", generate, methods=["POST"])])


def serve_empty(step_seconds: float, ready: Connection) -> None:
    """Serve the application in one process, without Ray; send the address through `ready`."""
    bound = bind("127.0.0.1", 0)
    ready.send(url(bound))
    app = _asgi_app(EmptyReplica(step_seconds).generate)
    config = uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run(sockets=[bound])


def empty_application(step_seconds: float) -> Application:
    """The application with a fixed step time."""
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": 0},
        "max_ongoing_requests": _MAX_STREAMS,
    }
    replica = serve.deployment(EmptyReplica, name="Model", **options)
    front = serve.deployment(serve.ingress()(EmptyFront), name="Front", **options)
    return front.bind(replica.bind(step_seconds))
