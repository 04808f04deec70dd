"""The memory of connections: what each takes, and how much all of them may take.

A client needs no API key to connect. So connections are counted: an idle one, what was received of
a request, and what is not yet sent of a response. Of a process with a memory limit, they take the
first megabyte from PROCESS_MEMORY, and up to half of REQUEST_MEMORY from request bodies.
"""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.bundle import CONNECTION_MEMORY, REQUEST_MEMORY
from hearthd.runtime.operating_system import physical_memory

# Bytes of a connection without a request, and more with TLS, during the handshake.
PLAIN, ENCRYPTED = 9_000, 45_000
_MACHINE_PART = 64  # where no limit is set: this part of the machine's memory


@dataclass
class ConnectionMemory:
    """Bytes that the connections of a server take, of at most `limit`.

    `is_limited` says whether the process has a memory limit.
    """

    limit: int
    is_limited: bool
    taken: int = 0

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
