"""The events of a request for its client, when one replica after the other computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.server.engine.generation import Embedded, Failed, Finished, Prefilled, Started, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hearthd.server.engine.generation import Event


class Delivery:
    """The events of one request for its client, whichever replica they come from."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self.started_at: float | None = None
        self._deliver = deliver
        self._tokens: list[int] = []  # delivered
        self._position = 0  # in the answer of the current replica

    def restart(self) -> None:
        """From now on, the events come from another replica."""
        self._position = 0

    def take_all(self, events: Iterable[Event]) -> bool:
        """As `take`, for several events; returns whether the last one was among them."""
        return any(self.take(event) for event in events)

    def take(self, event: Event) -> bool:
        """Deliver an event that the client does not have; returns whether it is the last one."""
        match event:
            case Prefilled():
                if self.started_at is None:
                    self._deliver(event)
            case Started(at):
                if self.started_at is None:
                    self.started_at = at
                    self._deliver(event)
            case Token(id_):
                return not self._take_token(event, id_)
            case Embedded():
                self._deliver(event)
            case Finished() | Failed():
                self._deliver(event)
                return True
        return False

    def _take_token(self, token: Token, id_: int) -> bool:
        """Deliver a token, or compare it with the one delivered; False if they differ."""
        self._position += 1
        if self._position > len(self._tokens):
            self._tokens.append(id_)
            self._deliver(token)
        elif id_ != self._tokens[self._position - 1]:
            self._deliver(
                Failed(
                    "a replica was lost, and another one computed other tokens: the nodes have "
                    "different kinds of CPU; deploy one application for each kind"
                )
            )
            return False
        return True
