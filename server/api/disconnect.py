"""A client that goes away before its answer is complete ends the work on it."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request

from server.errors import ClientDisconnected

T = TypeVar("T")


async def unless_disconnected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of the work, or ClientDisconnected as soon as the client is gone."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnected("the client went away before the answer was complete")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
