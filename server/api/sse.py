"""Answers as server-sent events, sent by sse-starlette."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from typing_extensions import override

from hearthd.server.api.answer_writer import or_error, whole_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import Request
    from starlette.types import Receive, Scope, Send

    from hearthd.server.api.answer_writer import Answer, AnswerWriter

# Otherwise sse-starlette cuts the streams half a second after the shutdown timeout, before streams
# of a slow step get their error. process/draining_server.py ends them.
AppStatus.enable_automatic_graceful_drain = False


class NamedEvent(BaseModel):
    """An event whose `type` is also its name in the stream. Unset fields are sent."""

    type: str


class CompletionStream(EventSourceResponse):
    """Send the events of a writer, one `data:` line each; an error becomes an event named `error`.

    The choices are cancelled when the response ends for any reason. A comment every 15 seconds
    keeps an idle connection open, or an empty line if the writer is `data_only`.
    """

    def __init__(self, writer: AnswerWriter[Any, Any]) -> None:
        super().__init__(
            _encode(writer),
            sep="\n",
            ping_message_factory=_empty_line if writer.data_only else None,
        )
        self._choices = writer.choices

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._choices:
            await super().__call__(scope, receive, send)


async def respond(
    writer: AnswerWriter[Any, Answer], request: Request, *, stream: bool
) -> Answer | CompletionStream:
    """The response to a request: a stream, or the whole answer unless its client disconnects.

    JsonRoute adds a header if tokens of a prompt were dropped.
    """
    request.state.dropped_tokens = writer.choices.dropped_tokens
    if stream:
        return CompletionStream(writer)
    return await whole_answer(writer, request)


def _empty_line() -> ServerSentEvent:
    return ServerSentEvent(sep="\n")


async def _encode(writer: AnswerWriter[Any, Any]) -> AsyncIterator[dict[str, str]]:
    async for event in or_error(writer.events(), writer.error):
        if isinstance(event, str):
            yield {"data": event} if writer.data_only else {"event": "error", "data": event}
            return
        if isinstance(event, NamedEvent):
            yield {"event": event.type, "data": event.model_dump_json()}
        else:
            yield {"data": event.model_dump_json(exclude_unset=True)}
    if writer.sends_done:
        yield {"data": "[DONE]"}
