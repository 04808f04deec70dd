"""Serve an application on a socket until a signal comes, then let it finish what it has accepted.

Uvicorn's own shutdown closes the port at once and sse-starlette then cuts every stream, so here the
signal only starts the draining: new requests get 503, and uvicorn shuts down when the last accepted
one is answered. When that takes too long, what runs is cancelled, and a client that does not read
is left. A second signal does not wait.
"""

from __future__ import annotations

import math
import socket
import time
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from types import FrameType

    from fastapi import FastAPI

    from server.service import Service


# Seconds in which those who are cancelled are told so.
_FAREWELL = 1


class CannotListen(Exception):
    """The address cannot be listened on; the message says why."""


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address, not listening yet; raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotListen(
            f"cannot listen on {host} port {port}: {reason}: choose another --host or --port "
            "(--port 0 takes a free one)"
        ) from error
    return bound


def url(bound: socket.socket) -> str:
    """The address of a bound socket as http://host:port."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains the service and whose second one ends it.

    What runs `shutdown_timeout` seconds after the first signal is cancelled.
    """

    def __init__(self, app: FastAPI, service: Service, *, shutdown_timeout: float = 30) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, server_header=False))
        self._service = service
        self._shutdown_timeout = shutdown_timeout
        self._deadline: float | None = None  # of time.monotonic, from the first signal on

    def serve_on(self, bound: socket.socket) -> None:
        """Serve until a signal comes, and return when everything accepted is answered."""
        # Connections wait from here on, so that an address that is announced can be connected to.
        bound.listen(self.config.backlog)
        self.run(sockets=[bound])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Called by the signal handler."""
        if self._deadline is not None:
            self.force_exit = self.should_exit = True
            return
        self._deadline = time.monotonic() + self._shutdown_timeout
        self._service.drain()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._service.cancel()
            if left <= 0 or self._service.idle:
                # From here on uvicorn waits for answers to be sent, and then for nobody.
                self.config.timeout_graceful_shutdown = max(_FAREWELL, math.ceil(left))
                self.should_exit = True
        return await super().on_tick(counter)
