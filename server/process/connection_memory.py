"""The memory of connections: what each takes, and how much all of them may take.

A client needs no API key to connect. So connections are counted: an idle one, what was received of
a request, and what is not yet sent of a response. Of a process with a memory limit, they take the
first megabyte from PROCESS_MEMORY, and up to half of REQUEST_MEMORY from request bodies.
"""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hearthd.bundle import CONNECTION_MEMORY, REQUEST_MEMORY
from hearthd.runtime.system.operating_system import physical_memory

# Bytes of a connection without a request, and more with TLS, during the handshake.
PLAIN, ENCRYPTED = 9_000, 45_000
_NETWORK_BYTES = 8  # of an IPv6 address: a client can have any address of its network
_MACHINE_PART = 64  # where no limit is set: this part of the machine's memory


@dataclass
class ConnectionMemory:
    """Bytes that the connections of a server take, of at most `limit`.

    `is_limited` says whether the process has a memory limit. `networks` counts the connections of
    each network: see `network_of`.
    """

    limit: int
    is_limited: bool
    taken: int = 0
    networks: Counter[str | bytes] = field(default_factory=Counter)

    @property
    def of_requests(self) -> int:
        """Bytes of REQUEST_MEMORY that are taken."""
        return max(0, self.taken - CONNECTION_MEMORY) if self.is_limited else 0


def memory_of_connections(*, is_limited: bool) -> ConnectionMemory:
    """What the connections of a process may take, with or without a memory limit."""
    limit = CONNECTION_MEMORY + REQUEST_MEMORY // 2
    if not is_limited:
        limit = max(limit, physical_memory() // _MACHINE_PART)
    return ConnectionMemory(limit, is_limited)


def network_of(address: Any) -> str | bytes:
    """What the connections of a client have in common: an IPv4 address, or half of an IPv6 address.

    `address` is a socket's. The clients of a socket in the file system are one network, "", whether
    or not they have bound theirs to a name.
    """
    host: str = address[0] if isinstance(address, tuple) else ""
    if ":" not in host or "." in host:  # IPv4, also within IPv6
        return host
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:_NETWORK_BYTES]
