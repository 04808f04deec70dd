"""Stop work on an answer when its client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from hearthd.server.errors import ClientDisconnected

T = TypeVar("T")


async def unless_disconnected(
    request: Request, work: Coroutine[None, None, T], *, is_answer: bool = True
) -> T:
    """Return the result of `work`; on a disconnect cancel it and raise ClientDisconnected.

    The work is the whole answer, or comes before one that may be a stream, which can go on without
    its client: see resumable/middleware.py.
    """
    if is_answer and (needs_client := getattr(request.state, "needs_client", None)):
        needs_client.set()
    answer = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnected("the client disconnected before the answer was complete")
        return answer.result()
    finally:
        answer.cancel()
        disconnect.cancel()


async def whole_body(request: Request) -> bytes:
    """The request's body; raises ClientDisconnected."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientDisconnected(
            "the client disconnected before its request was complete"
        ) from error


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
