"""Streams of JSON values: a line each, as in Ollama's API, or in an array, as in Gemini's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from typing_extensions import override

from hearthd.server.api.answer_writer import or_error, whole_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import Request
    from pydantic import BaseModel
    from starlette.types import Receive, Scope, Send

    from hearthd.server.api.answer_writer import Answer, AnswerWriter

NDJSON = "application/x-ndjson"
# Proxies pass each line on: nginx would wait for more.
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class LineStream(StreamingResponse):
    """Send events, one line each; the last line of a failed stream is the data of its error."""

    media_type = NDJSON

    def __init__(
        self, events: AsyncIterator[BaseModel], error: Callable[[BaseException], str]
    ) -> None:
        super().__init__(self._lines(_encode(events, error)), headers=_HEADERS)

    @staticmethod
    async def _lines(values: AsyncIterator[str]) -> AsyncIterator[str]:
        """The text of the stream, from its values as JSON."""
        async for value in values:
            yield f"{value}\n"


class AnswerLines(LineStream):
    """Send the events of a writer; its choices are cancelled when the response ends."""

    def __init__(self, writer: AnswerWriter[Any, Any]) -> None:
        super().__init__(writer.events(), writer.error)
        self._choices = writer.choices

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._choices:
            await super().__call__(scope, receive, send)


class AnswerArray(AnswerLines):
    """Send the events of a writer as the items of an array; a failed one ends with the error."""

    media_type = "application/json"

    @override
    @staticmethod
    async def _lines(values: AsyncIterator[str]) -> AsyncIterator[str]:
        separator = "["
        async for value in values:
            yield f"{separator}{value}"
            separator = ",\n"
        yield "]"


async def respond_in_lines(
    writer: AnswerWriter[Any, Answer],
    request: Request,
    *,
    stream: bool,
    form: type[AnswerLines] = AnswerLines,
) -> Answer | LineStream:
    """As sse.respond, with lines in place of server-sent events."""
    request.state.dropped_tokens = writer.choices.dropped_tokens
    if stream:
        return form(writer)
    return await whole_answer(writer, request)


async def _encode(
    events: AsyncIterator[BaseModel], error: Callable[[BaseException], str]
) -> AsyncIterator[str]:
    async for event in or_error(events, error):
        yield event if isinstance(event, str) else event.model_dump_json(exclude_unset=True)
