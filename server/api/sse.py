"""Answers as server-sent events, by sse-starlette."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from sse_starlette import EventSourceResponse

from server.api.http_errors import describe, encode
from server.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from server.text.choices import Choices
    from server.text.completion import Completion

log = logging.getLogger(__name__)


def streams(kind: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """What the document of a route says of its streams, whose events are of this kind."""
    content = {"text/event-stream": {"description": f"Events, each a {kind.__name__}."}}
    return {200: {"content": content}}


class NamedEvent(BaseModel):
    """An event whose `type` is its name in the stream, too; fields that are not set are sent."""

    type: str


class CompletionStream(EventSourceResponse):
    """Sends `events`, one `data:` line each; an error on the way becomes an event named `error`.

    With `done`, the stream ends with `data: [DONE]`, if all went well.

    The completion is left, and so cancelled, when the response ends in whatever way. A client that
    waits long gets a comment every 15 seconds, which keeps the connection.
    """

    def __init__(
        self,
        completion: Completion | Choices,
        events: AsyncIterator[BaseModel],
        *,
        done: bool = False,
    ) -> None:
        super().__init__(_encode(events, done=done), sep="\n")
        self._completion = completion

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._completion:
            await super().__call__(scope, receive, send)


async def _encode(events: AsyncIterator[BaseModel], *, done: bool) -> AsyncIterator[dict[str, str]]:
    try:
        async for event in events:
            if isinstance(event, NamedEvent):
                yield {"event": event.type, "data": event.model_dump_json()}
            else:
                yield {"data": event.model_dump_json(exclude_unset=True)}
        if done:
            yield {"data": "[DONE]"}
    except Exception as error:
        if not isinstance(error, ServerError):
            log.exception("a stream failed")
        yield {"event": "error", "data": encode(describe(error))}
