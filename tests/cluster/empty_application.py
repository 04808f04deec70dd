"""An application that does nothing, on Ray Serve and in one process.

Its route /generate answers as a server with a fixed step time does. On Ray, the front gets each
event from a replica, as a front of Hearth does, but reads no request and computes nothing. The
difference between both is the least that Ray adds to the first token. /direct/generate does the
same with a connection from the front to the replica in place of Ray's handle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import uvicorn
from ray import serve
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from hearthd.server.process.listening import bind, url

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """Waits in place of an engine."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._server: asyncio.Server | None = None

    async def generate(self, _work: Any) -> AsyncIterator[bytes]:
        """Each event after a step."""
        for event in _EVENTS:
            await asyncio.sleep(self._step_seconds)
            yield event

    async def port(self) -> int:
        """The port where it serves connections, as `_serve` does."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each message with events, and an empty message after the last one."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                async for event in self.generate(await _receive(reader)):
                    _send(writer, event)
                _send(writer, b"")


class EmptyFront:
    """Answers HTTP with the events of a replica."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray."""
        by_handle = self._handle.options(stream=True).generate.remote
        return _asgi_app({"/generate": by_handle, "/direct/generate": self._direct})

    async def _direct(self, work: bytes) -> AsyncIterator[bytes]:
        """The events for a message, over a connection that no other request uses."""
        if not self._idle:
            port = await self._handle.port.remote()
            self._idle.append(await asyncio.open_connection("127.0.0.1", port))
        reader, writer = self._idle.pop()
        _send(writer, work)
        while event := await _receive(reader):
            yield event
        self._idle.append((reader, writer))


def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(4) + message)


async def _receive(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


def _asgi_app(routes: Mapping[str, Events]) -> ASGIApp:
    """Answers POST to each path with the events for the body."""

    def route(path: str, events: Events) -> Route:
        async def answer(request: Request) -> StreamingResponse:
            return StreamingResponse(events(await request.body()), media_type="text/event-stream")

        return Route(path, answer, methods=["POST"])

    return Starlette(routes=[route(path, events) for path, events in routes.items()])


def serve_empty(step_seconds: float, ready: Connection) -> None:
    """Serve the application in one process, without Ray; send the address through `ready`."""
    bound = bind("127.0.0.1", 0)
    ready.send(url(bound))
    app = _asgi_app({"/generate": EmptyReplica(step_seconds).generate})
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
