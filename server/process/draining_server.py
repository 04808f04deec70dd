"""Serve an application on a socket until a signal comes, then finish what is accepted and exit.

Uvicorn on a signal closes the port at once, and sse-starlette then cuts every stream. Here the
first signal starts to drain: new requests get status 503, and uvicorn shuts down when the last
accepted request is answered. After a timeout, running requests are cancelled and clients that do
not read are disconnected. A second signal exits at once. SIGHUP, which Windows does not have,
reloads the bundles, see services/model_pool.py, and the TLS files.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from typing_extensions import override

from hearthd.runtime.system.free_memory import free_memory
from hearthd.runtime.system.operating_system import HANGUP, has_terminal
from hearthd.server.fault_isolation import BackgroundTasks, contained
from hearthd.server.process.accept_queue import AcceptQueue
from hearthd.server.process.client_timeouts import TimedConnection
from hearthd.server.process.connection_memory import ConnectionMemory, memory_of_connections
from hearthd.server.process.listening import CannotListen, max_connections
from hearthd.server.process.tls_connection import TlsConnection, TlsOptions

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from types import FrameType

    from fastapi import FastAPI

    from hearthd.server.process.listening import Tls

log = logging.getLogger(__name__)

# Seconds for cancelled requests to send their last bytes: more than one step on a slow device.
_CANCEL_GRACE = 5
_TICKS_PER_SECOND = 10  # of uvicorn
_TICKS_PER_TRIM = 10 * _TICKS_PER_SECOND  # freeing memory takes 1 ms
# Seconds. A request that crosses the end of its connection is lost: clients and proxies end idle
# connections first, Caddy after 120 seconds.
_KEEP_ALIVE = 125
_BACKLOG = 2048  # connections that the kernel keeps until the server accepts them
# Connections that may wait in the AcceptQueue, at most this part of all.
_MAX_WAITING, _WAITING_PART = 8192, 4


class Drainable(Protocol):
    """The target of signals: services/model_pool.py, which imports this package."""

    @property
    def idle(self) -> bool:
        """Whether no accepted request is being answered."""

    def drain(self) -> None:
        """Reject new requests; finish the accepted ones."""

    def cancel(self) -> None:
        """Cancel the requests that are still running."""

    def tick(self) -> None:
        """Called once a second."""

    async def reload_all(self) -> None:
        """Load the bundles again."""


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains the pool on the first signal and exits on the second.

    Requests that still run `shutdown_timeout` seconds after the first signal are cancelled.
    `client_timeout` is in seconds: see client_timeouts.py. `trusted_proxies` are addresses or
    networks, or "*" for all, whose X-Forwarded-For and X-Forwarded-Proto are believed; without any,
    as $FORWARDED_ALLOW_IPS says, by default this machine. `memory` is what connections may
    take, by default a part of the machine's memory.
    """

    def __init__(
        self,
        app: FastAPI,
        pool: Drainable,
        *,
        shutdown_timeout: float = 30,
        client_timeout: float = 30,
        tls: Tls | None = None,
        trusted_proxies: Sequence[str] = (),
        memory: ConnectionMemory | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=self._new_connection,  # type: ignore[arg-type]
                ws="none",  # otherwise uvicorn uses a WebSocket library that happens to be there
                loop="asyncio",  # TlsConnection is tested with this one
                backlog=_BACKLOG,
                log_config=None,
                access_log=False,  # the application writes one
                timeout_keep_alive=_KEEP_ALIVE,
                server_header=False,
                forwarded_allow_ips=list(trusted_proxies) or None,
            )
        )
        self._pool = pool
        self._tls = tls
        self._tls_options = None if tls is None else TlsOptions(tls.context, client_timeout)
        files = max_connections()
        self._max_waiting = min(_MAX_WAITING, files // _WAITING_PART)
        self._max_connections = files - self._max_waiting
        self._queue: AcceptQueue | None = None
        self._memory = memory or memory_of_connections(is_limited=False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._had_terminal = False  # when it started, unless SIGHUP is ignored
        self._reloads = BackgroundTasks()
        self._checked: list[asyncio.Protocol] = []  # the connections of this second
        self._trimmed_after = 0  # requests
        self._shutdown_timeout = shutdown_timeout
        self._client_timeout = client_timeout
        self._deadline: float | None = None  # by time.monotonic; set by the first signal

    def serve_on(self, *sockets: socket.socket) -> None:
        """Serve until a signal comes; return when every accepted request is answered."""
        # Connections are queued from here on, so the address can be announced.
        for bound in sockets:
            bound.listen(_BACKLOG)
        self.run(sockets=list(sockets))

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by `run` in the event loop."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn before it accepts connections."""
        await super().startup(sockets)
        protocol = functools.partial(
            self._new_connection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self._queue = AcceptQueue(protocol, self._max_waiting)
        self._queue.accept_from(sockets or ())
        # Only the main thread can handle signals.
        if HANGUP is not None and threading.current_thread() is threading.main_thread():
            self._had_terminal = signal.getsignal(HANGUP) != signal.SIG_IGN and has_terminal()
            asyncio.get_running_loop().add_signal_handler(HANGUP, self._on_sighup)

    def _new_connection(self, **options: Any) -> asyncio.BaseProtocol:
        """The protocol of a connection, with the options that uvicorn gives it."""
        http = TimedConnection(
            max_connections=self._max_connections, memory=self._memory, **options
        )
        return http if self._tls_options is None else TlsConnection(http, self._tls_options)

    def _on_sighup(self) -> None:
        """SIGHUP: reload the bundles and TLS files, or exit if the terminal was closed."""
        if self._had_terminal and not has_terminal():
            self.handle_exit(signal.SIGTERM, None)
        else:
            with contained("the reload of the TLS files"):
                self._reload_tls()
            self._reloads.start("reload", self._pool.reload_all())

    def _reload_tls(self) -> None:
        """Use the TLS files as they are now for new connections, unless they are not valid."""
        if self._tls is None:
            return
        try:
            self._tls = replace(self._tls)
        except CannotListen as error:
            log.error("%s; the server keeps the certificate that it has", error)
        else:
            self._tls_options = TlsOptions(self._tls.context, self._client_timeout)
            log.info("reloaded %s and %s", self._tls.certificate, self._tls.key)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal handler, between two instructions of whatever runs."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._shutdown_timeout
            reaction = self._pool.drain
        else:
            self.force_exit = self.should_exit = True
            reaction = self._abort_connections
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has been closed
                self._loop.call_soon_threadsafe(reaction)

    @override
    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        self._end_drain()
        if counter % _TICKS_PER_SECOND == 0:
            with contained("the models' tick"):
                self._pool.tick()
        if counter % _TICKS_PER_TRIM == 0:
            with contained("returning memory"):
                self._trim()
        self._close_slow_clients(counter % _TICKS_PER_SECOND)
        return await super().on_tick(counter)

    def _end_drain(self) -> None:
        """After the first signal: exit if all requests are answered, or when time is up."""
        if self._deadline is None:
            return
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            with contained("cancel"):
                self._pool.cancel()
        is_over = remaining <= 0
        with contained("drain"):
            is_over = is_over or self._pool.idle
        if is_over:
            # Uvicorn now waits this long for responses to be sent, then stops.
            self.config.timeout_graceful_shutdown = max(_CANCEL_GRACE, math.ceil(remaining))
            self.should_exit = True

    def _trim(self) -> None:
        """Return the memory that the requests since the last time have freed."""
        requests = self.server_state.total_requests
        if requests != self._trimmed_after:
            self._trimmed_after = requests
            free_memory()

    def _close_slow_clients(self, turn: int) -> None:
        """Check a tenth of the connections; all of 10,000 at once would stop streams for 24 ms."""
        connections = self.server_state.connections
        if turn == 0:
            self._checked = list(connections)
        for connection in self._checked[turn::_TICKS_PER_SECOND]:
            if isinstance(connection, TimedConnection) and connection in connections:
                with contained("the check of a connection"):
                    connection.close_if_timed_out(self._client_timeout)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn at the end. Abort the connections that are still open."""
        if self._queue is not None:
            self._queue.close()
        await super().shutdown(sockets)
        self._abort_connections()
        if self.force_exit:
            # Uvicorn would leave the rest to the end of the event loop, which cancels it; it then
            # logs a traceback for each.
            await self.lifespan.shutdown()
            if tasks := self.server_state.tasks:
                await asyncio.wait(tasks, timeout=_CANCEL_GRACE)
        await asyncio.sleep(0)  # the event loop closes them in its next iteration

    def _abort_connections(self) -> None:
        """Disconnect all clients, which ends their requests."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, TimedConnection):
                with contained("the end of a connection"):
                    connection.abort()
