"""Answers as server-sent events, by sse-starlette."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sse_starlette import EventSourceResponse

from server.api.errors import describe, encode
from server.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import BaseModel
    from starlette.types import Receive, Scope, Send

    from server.text.completion import Completion

log = logging.getLogger(__name__)


class CompletionStream(EventSourceResponse):
    """Sends `events`, one `data:` line each; an error on the way becomes an event named `error`.

    The completion is left, and so cancelled, when the response ends in whatever way.
    """

    def __init__(self, completion: Completion, events: AsyncIterator[BaseModel]) -> None:
        super().__init__(_encode(events), sep="\n")
        self._completion = completion

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._completion:
            await super().__call__(scope, receive, send)


async def _encode(events: AsyncIterator[BaseModel]) -> AsyncIterator[dict[str, str]]:
    try:
        async for event in events:
            yield {"data": event.model_dump_json(exclude_unset=True)}
    except Exception as error:
        if not isinstance(error, ServerError):
            log.exception("a stream failed")
        yield {"event": "error", "data": encode(describe(error))}
