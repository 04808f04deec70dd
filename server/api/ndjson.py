"""Streams of JSON values, one per line, as Ollama's API has them."""

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

    def __init__(
        self, events: AsyncIterator[BaseModel], error: Callable[[BaseException], str]
    ) -> None:
        super().__init__(_lines(events, error), media_type=NDJSON, headers=_HEADERS)


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


async def respond_in_lines(
    writer: AnswerWriter[Any, Answer], request: Request, *, stream: bool
) -> Answer | LineStream:
    """As sse.respond, with lines in place of server-sent events."""
    request.state.dropped_tokens = writer.choices.dropped_tokens
    if stream:
        return AnswerLines(writer)
    return await whole_answer(writer, request)


async def _lines(
    events: AsyncIterator[BaseModel], error: Callable[[BaseException], str]
) -> AsyncIterator[str]:
    async for event in or_error(events, error):
        line = event if isinstance(event, str) else event.model_dump_json(exclude_unset=True)
        yield f"{line}\n"
