"""The protocol of answer writers: the events of a stream, or one whole answer."""

from __future__ import annotations

import logging
import secrets
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.http_errors import describe, encode
from hearthd.server.fault_isolation import STOPS
from hearthd.text.answer import AnswerSummary
from hearthd.text.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from fastapi import Request

    from hearthd.server.completions.choices import Choices
    from hearthd.text.answer import Piece

log = logging.getLogger(__name__)

Event = TypeVar("Event", bound=BaseModel)
Answer = TypeVar("Answer")


class AnswerWriter(ABC, Generic[Event, Answer]):
    """Turns the pieces of the answers to one request into the form of a surface, once.

    A whole answer is made of the events that a stream has, so the two cannot differ.
    `sends_done` says whether a stream without an error ends with `data: [DONE]`. `data_only` says
    whether a stream has neither comments nor names of events, which its clients cannot read.
    """

    sends_done = False
    data_only = False

    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    async def events(self) -> AsyncIterator[Event]:
        """The events, as the pieces arrive; raises what Choices.pieces raises."""
        for event in self._begin():
            yield event
        async for index, piece in self.choices.pieces():
            for event in (
                self._end(index, piece)
                if isinstance(piece, AnswerSummary)
                else self._more(index, piece)
            ):
                yield event
        for event in self._finish():
            yield event

    async def answer(self) -> Answer:
        """The whole answer, when it is complete; raises as `events`."""
        async for event in self.events():
            self._keep(event)
        return self._answer()

    def error(self, error: BaseException) -> str:
        """The data of a stream's event for an error."""
        return encode(describe(error))

    def _begin(self) -> Iterable[Event]:
        """The events before the first piece."""
        return ()

    @abstractmethod
    def _more(self, index: int, piece: Piece) -> Iterable[Event]:
        """The events for more of a choice."""

    @abstractmethod
    def _end(self, index: int, summary: AnswerSummary) -> Iterable[Event]:
        """The events for the end of a choice."""

    def _finish(self) -> Iterable[Event]:
        """The events after the end of all choices."""
        return ()

    def _keep(self, _event: Event) -> None:
        """Keep what the whole answer needs of an event."""
        return

    @abstractmethod
    def _answer(self) -> Answer:
        """The whole answer, after all events."""


async def or_error(
    events: AsyncIterator[Event], data: Callable[[BaseException], str]
) -> AsyncIterator[Event | str]:
    """The events of a stream, and after an error, which is logged, its data."""
    try:
        async for event in events:
            yield event
    except STOPS:
        raise
    except BaseException as problem:
        if not isinstance(problem, RequestError):
            log.exception("a stream failed")
        yield data(problem)


async def whole_answer(writer: AnswerWriter[Any, Answer], request: Request) -> Answer:
    """The whole answer; cancelled if the client disconnects. Raises as AnswerWriter.events."""
    with writer.choices:
        return await unless_disconnected(request, writer.answer())


def new_id(prefix: str) -> str:
    """A new unique id."""
    return f"{prefix}{secrets.token_hex(12)}"
