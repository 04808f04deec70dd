"""An application of Ray Serve that does nothing: the least that a cluster can add to a request.

Its route /generate answers as a server with a fixed step time does. The front gets each event from
a replica, as a front of Hearth does, but reads no request and computes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ray import serve
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle
    from starlette.requests import Request
    from starlette.types import ASGIApp

_EVENTS = (
    b'data: {"token_ids": [5]}\n\n',
    b'data: {"finish_reason": "length", "seed": 0}\n\n',
)
_MAX_STREAMS = 100


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
        return Starlette(routes=[Route("/generate", self._generate, methods=["POST"])])

    async def _generate(self, request: Request) -> StreamingResponse:
        work = await request.body()
        events = self._handle.generate.remote(work)
        return StreamingResponse(events, media_type="text/event-stream")


def empty_application(step_seconds: float) -> Application:
    """The application with a fixed step time."""
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": 0},
        "max_ongoing_requests": _MAX_STREAMS,
    }
    replica = serve.deployment(EmptyReplica, name="Model", **options)
    front = serve.deployment(serve.ingress()(EmptyFront), name="Front", **options)
    return front.bind(replica.bind(step_seconds))
