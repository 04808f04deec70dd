"""Messages to the engine's thread, from any other thread."""

from __future__ import annotations

import contextlib
import queue
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from hearthd.server.engine.sequence import Sequence


@dataclass(frozen=True)
class Submit:
    """Serve this sequence."""

    sequence: Sequence


@dataclass(frozen=True)
class Cancel:
    """End the sequence with this id, if it has not ended."""

    id: int


@dataclass(frozen=True)
class WriteAdapter:
    """Fill a place of the runtime with the factors of an adapter, then complete `written`."""

    place: int
    factors: SequenceOf[NDArray[Any]]
    written: Future[None]


@dataclass(frozen=True)
class Stop:
    """End the thread."""


Message: TypeAlias = Submit | Cancel | WriteAdapter | Stop


class Inbox:
    """A queue of messages. Any thread puts; the engine's thread takes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Add a message; returns at once."""
        self._queue.put(message)

    def take(self, *, wait: bool) -> list[Message]:
        """All messages that have come; with `wait`, at least one."""
        messages = [self._queue.get()] if wait else []
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self._queue.get_nowait())
        return messages
