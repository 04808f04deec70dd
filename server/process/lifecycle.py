"""Serve an application on a socket until a signal comes, then let it finish what it has accepted.

Uvicorn's own shutdown closes the port at once and sse-starlette then cuts every stream, so here the
signal only starts the draining: new requests get 503, and uvicorn shuts down when the last accepted
one is answered. When that takes too long, what runs is cancelled, and a client that does not read
is left. A second signal does not wait. SIGHUP loads the bundle anew: see deployment.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import resource
import signal
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import uvicorn

from server.errors import NotReloaded
from server.process.client_timeouts import Connection

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from fastapi import FastAPI


# Seconds in which those who are cancelled are told so: more than a step takes on a slow device.
_FAREWELL = 5
_TICKS_A_SECOND = 10  # of uvicorn
_BACKLOG = 2048  # connections that may wait
# It takes four turns of the event loop until one that is too many is closed.
_ACCEPTED_AT_ONCE = 4
_MOST_FILES = 2**16
_OTHER_FILES = 64  # of a process that are not connections, at most


class CannotListen(Exception):
    """The address cannot be listened on; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files of a certificate chain and its private key, both PEM; checked when it is made."""

    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        """Raises CannotListen when the files are no certificate and its key."""
        for path in (self.certificate, self.key):
            if not path.is_file():
                raise CannotListen(f"cannot serve HTTPS: there is no file {path}")
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.key
            )
        except (OSError, ssl.SSLError) as error:
            raise CannotListen(
                f"cannot serve HTTPS: {self.certificate} and {self.key} are not a certificate and "
                f"its key in PEM: {error}"
            ) from error


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


def most_connections() -> int:
    """How many connections there may be, by the limit on open files, which is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(files // 2, files - _OTHER_FILES)


def url(bound: socket.socket, tls: Tls | None = None) -> str:
    """The address of a bound socket as http://host:port, or https:// with a certificate."""
    host, port = bound.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _terminal() -> bool:
    """Whether the process has a terminal, by which it was started."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Drainable(Protocol):
    """What signals act on: services/deployment.py, which imports this package."""

    @property
    def idle(self) -> bool:
        """Whether no accepted request is being answered."""

    def drain(self) -> None:
        """Reject new requests; finish the accepted ones."""

    def cancel(self) -> None:
        """Cancel the requests that are still running."""

    def look(self) -> None:
        """Check the bundle's files, once a second."""

    async def reload(self) -> object:
        """Load the bundle again; raises NotReloaded."""


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains the deployment and whose second one ends it.

    What runs `shutdown_timeout` seconds after the first signal is cancelled. A client that takes
    more than `client_timeout` seconds over something is cut off: see connection.py.
    """

    def __init__(
        self,
        app: FastAPI,
        deployment: Drainable,
        *,
        shutdown_timeout: float = 30,
        client_timeout: float = 30,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(Connection, most=most_connections()),  # type: ignore[arg-type]
                # For uvicorn this is how many may wait, too: see `startup`.
                backlog=_ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,  # the application writes its own
                server_header=False,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
            )
        )
        self._deployment = deployment
        self._reloads: set[asyncio.Task[None]] = set()
        self._shutdown_timeout = shutdown_timeout
        self._client_timeout = client_timeout
        self._deadline: float | None = None  # of time.monotonic, from the first signal on

    def serve_on(self, bound: socket.socket) -> None:
        """Serve until a signal comes, and return when everything accepted is answered."""
        # Connections wait from here on, so that an address that is announced can be connected to.
        bound.listen(_BACKLOG)
        self.run(sockets=[bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn; afterwards connections are accepted."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(_BACKLOG)
        if threading.current_thread() is threading.main_thread():  # others take no signals
            self._had_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _terminal()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        """SIGHUP: load the bundle anew, or end if what has gone is the terminal."""
        if self._had_terminal and not _terminal():
            self.handle_exit(signal.SIGHUP, None)
            return
        reload = asyncio.create_task(self._reload())
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        with contextlib.suppress(NotReloaded):  # it stands in the log and in /health
            await self._deployment.reload()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Called by the signal handler."""
        if self._deadline is not None:
            self.force_exit = self.should_exit = True
            return
        self._deadline = time.monotonic() + self._shutdown_timeout
        self._deployment.drain()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._deployment.cancel()
            if left <= 0 or self._deployment.idle:
                # From here on uvicorn waits for answers to be sent, and then for nobody.
                self.config.timeout_graceful_shutdown = max(_FAREWELL, math.ceil(left))
                self.should_exit = True
        if counter % _TICKS_A_SECOND == 0:
            self._deployment.look()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection), "the configuration names the class"
                connection.close_if_late(self._client_timeout)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called when no more is served; connections that are still open then are cut."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            transport = connection.transport
            assert transport is not None, "a connection that is open has a transport"
            transport.abort()
        await asyncio.sleep(0)  # the event loop closes them in its next round
