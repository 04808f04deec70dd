"""The queue of clients that have connected, in turn by address.

The kernel's queue is first in, first out: a client that connects faster than the server answers
fills it, and every other client waits behind 2048 of its connections. So the server empties it at
once, and starts the connections of each address in turn. A client that has left without a byte is
skipped: that takes 20 µs, and a connection 300 µs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from hearthd.server.fault_isolation import BackgroundTasks, report
from hearthd.server.process.connection_memory import network_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE = 64  # in a round of the event loop, or skipped
_STARTED_AT_ONCE = 4  # a connection too many is closed four rounds later
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 1.0  # when no more files can be opened


class AcceptQueue:
    """The clients that wait for their connection to start.

    At most `limit` clients wait. One more closes the newest of the address with the most. `new`
    creates the protocol of a connection.
    """

    def __init__(self, new: Callable[[], asyncio.BaseProtocol], limit: int) -> None:
        self._new = new
        self._limit = limit
        self._waiting: dict[str | bytes, deque[socket.socket]] = {}  # by address, the next first
        self._count = 0
        self._busiest: str | bytes = ""  # the address with the most, about
        self._loop = asyncio.get_running_loop()
        self._next_round: asyncio.Handle | None = None
        self._starting = BackgroundTasks()

    def accept_from(self, sockets: Iterable[socket.socket]) -> None:
        """Accept from these sockets, in place of the event loop's servers; not on Windows."""
        for bound in sockets:
            with contextlib.suppress(NotImplementedError):  # its event loop goes on
                self._loop.remove_reader(bound)
                self._loop.add_reader(bound, self._accept, bound)

    def close(self) -> None:
        """Close the connections that wait."""
        if self._next_round is not None:
            self._next_round.cancel()
        for waiting in self._waiting.values():
            for connection in waiting:
                connection.close()
        self._waiting.clear()

    def _accept(self, bound: socket.socket) -> None:
        """Called by the event loop when clients are in the queue of the kernel."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                report("accepting a connection", error)
                if error.errno in _NO_FILES:
                    self._loop.remove_reader(bound)
                    self._loop.call_later(_RETRY_SECONDS, self._retry, bound)
                break
            connection.setblocking(False)
            self._add(connection, network_of(address))
        if self._next_round is None:
            self._start()

    def _retry(self, bound: socket.socket) -> None:
        if bound.fileno() >= 0:
            self.accept_from([bound])

    def _add(self, connection: socket.socket, network: str | bytes) -> None:
        waiting = self._waiting.setdefault(network, deque())
        waiting.append(connection)
        self._count += 1
        if len(waiting) > len(self._waiting.get(self._busiest, ())):
            self._busiest = network
        if self._count > self._limit:
            log.debug("too many connections wait: closing the newest")
            self._take(self._busiest, deque.pop).close()

    def _take(
        self, network: str | bytes, end: Callable[[deque[socket.socket]], socket.socket]
    ) -> socket.socket:
        """Remove a connection from an end of the queue of an address."""
        waiting = self._waiting[network]
        connection = end(waiting)
        self._count -= 1
        if not waiting:
            del self._waiting[network]
        return connection

    def _start(self) -> None:
        """Start some connections, and the rest in the next rounds of the event loop."""
        self._next_round = None
        started = 0
        for _ in range(_ACCEPTED_AT_ONCE):
            if not self._waiting or started == _STARTED_AT_ONCE:
                break
            network = next(iter(self._waiting))
            connection = self._take(network, deque.popleft)
            if network in self._waiting:
                self._waiting[network] = self._waiting.pop(network)  # behind the others
            if _has_left(connection):
                connection.close()
            else:
                started += 1
                self._starting.start("a connection", self._connect(connection))
        if self._waiting:
            self._next_round = self._loop.call_soon(self._start)

    async def _connect(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as unless_connected:
            unless_connected.callback(connection.close)
            await self._loop.connect_accepted_socket(self._new, connection)
            unless_connected.pop_all()


def _has_left(connection: socket.socket) -> bool:
    """Whether the client has closed the connection before its first byte."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:  # reset
        return True
