"""Answers as server-sent events, sent by sse-starlette."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pydantic import BaseModel
from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from typing_extensions import override

from hearthd.server.api.http_errors import describe, encode
from hearthd.server.errors import ServerError
from hearthd.server.fault_isolation import STOPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from hearthd.server.text.choices import Choices
    from hearthd.server.text.completion import Completion

log = logging.getLogger(__name__)

# Otherwise sse-starlette cuts the streams half a second after the shutdown timeout, before those of
# a slow step get their error. process/draining_server.py ends them.
AppStatus.enable_automatic_graceful_drain = False


class NamedEvent(BaseModel):
    """An event whose `type` is also its name in the stream. Unset fields are sent."""

    type: str


def _describe(error: BaseException) -> str:
    return encode(describe(error))


class CompletionStream(EventSourceResponse):
    """Send `events`, one `data:` line each; an error becomes an event named `error`.

    With `done`, a stream without an error ends with `data: [DONE]`. `error` makes the data of the
    event for an error.

    The completion is cancelled when the response ends for any reason. A comment every 15 seconds
    keeps an idle connection open.
    """

    def __init__(
        self,
        completion: Completion | Choices,
        events: AsyncIterator[BaseModel],
        *,
        done: bool = False,
        error: Callable[[BaseException], str] = _describe,
    ) -> None:
        super().__init__(_encode(events, done=done, error=error), sep="\n")
        self._completion = completion

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._completion:
            await super().__call__(scope, receive, send)


async def _encode(
    events: AsyncIterator[BaseModel], *, done: bool, error: Callable[[BaseException], str]
) -> AsyncIterator[dict[str, str]]:
    try:
        async for event in events:
            if isinstance(event, NamedEvent):
                yield {"event": event.type, "data": event.model_dump_json()}
            else:
                yield {"data": event.model_dump_json(exclude_unset=True)}
        if done:
            yield {"data": "[DONE]"}
    except STOPS:
        raise
    except BaseException as problem:
        if not isinstance(problem, ServerError):
            log.exception("a stream failed")
        yield {"event": "error", "data": error(problem)}
