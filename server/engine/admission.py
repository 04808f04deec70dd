"""Admission: how many requests may be accepted, and when a rejected client should retry.

For every service with a queue: the engine has several slots, a thread that calls array functions
has one. All methods may be called from any thread.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hearthd.server.errors import Draining, EngineStopped, QueueFull

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# How many of the latest requests predict how long the next ones will take.
_RECENT_REQUESTS = 32


class Admission:
    """Accepts at most `slots` + `queue_limit` requests at a time, until drained or stopped.

    Both may change.
    """

    def __init__(self, *, slots: int, queue_limit: int) -> None:
        self.queue_limit = queue_limit
        self.slots = slots
        self._accepted = 0
        self._seconds: deque[float] = deque(maxlen=_RECENT_REQUESTS)
        self._draining = False
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def capacity(self) -> int:
        """How many requests may be accepted at a time."""
        return self.slots + self.queue_limit

    @property
    def accepted(self) -> int:
        """How many requests were accepted and have not left."""
        return self._accepted

    @property
    def queued(self) -> int:
        """How many requests have no slot. One that comes when a slot is free gets it at once."""
        return max(0, self._accepted - self.slots)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def unavailable(self) -> Draining | EngineStopped | None:
        """Why every request is rejected now, or None."""
        if self._draining:
            return Draining("the server is shutting down and takes no new requests")
        if self._stopped:
            return EngineStopped("the engine has stopped: see the server's log and restart it")
        return None

    @contextmanager
    def accept(self) -> Iterator[None]:
        """Accept a request, which the block hands over to its thread.

        Raises QueueFull, Draining or EngineStopped.
        """
        with self.handing_over():
            if self._accepted >= self.capacity:
                wait = retry_after(self._seconds, queued=self.queued, slots=self.slots)
                raise QueueFull(queued=self.queued, limit=self.queue_limit, retry_after=wait)
            yield
            self._accepted += 1

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Hand something over to the thread; raises Draining or EngineStopped.

        `stop` waits for the block to end, so nothing is handed over to a thread that has stopped.
        """
        with self._lock:
            if problem := self.unavailable():
                raise problem
            yield

    def leave(self, seconds: float | None = None) -> None:
        """An accepted request has ended; it had its slot for `seconds`, or never had one."""
        with self._lock:
            self._accepted -= 1
            if seconds is not None:
                self._seconds.append(seconds)

    def drain(self) -> None:
        """Reject new requests from now on."""
        self._draining = True

    def stop(self) -> None:
        """Reject new requests, as there is no thread to serve them."""
        with self._lock:
            self._stopped = True


def retry_after(seconds: Collection[float], *, queued: int, slots: int) -> int:
    """Seconds until the queued requests are likely to have been served, at least 1.

    `seconds` are the times that recent requests had a slot.
    """
    if not seconds:
        return 1
    mean = sum(seconds) / len(seconds)
    return max(1, math.ceil(mean * queued / max(1, slots)))
