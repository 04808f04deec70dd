"""Clients of a server under load, and the answers that they must get."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from tests.cluster.fake_bundles import FakeBundles

_TIMEOUT = 120.0


@dataclass
class Answer:
    """What a client got.

    error          why the answer is not complete, or an empty string
    first_seconds  from the request to the first token
    pause_seconds  the longest time between two tokens
    """

    body: Mapping[str, Any]
    tokens: list[int] = field(default_factory=list)
    error: str = ""
    first_seconds: float = 0.0
    pause_seconds: float = 0.0
    seed: int = -1


async def stream(client: httpx.AsyncClient, body: Mapping[str, Any]) -> Answer:
    """Send a request to /generate and read its stream."""
    answer = Answer(body)
    began = latest = time.monotonic()
    try:
        async with client.stream("POST", "/generate", json={**body, "stream": True}) as response:
            if response.status_code != 200:
                answer.error = f"{response.status_code}: {(await response.aread())[:200]!r}"
                return answer
            async for line in _lines(response):
                if line.startswith("event: error"):
                    answer.error = "error"
                if not line.startswith("data: "):
                    continue
                data = json.loads(line.removeprefix("data: "))
                now = time.monotonic()
                if "error" in data:
                    answer.error = str(data["error"]["message"])
                elif "finish_reason" in data:
                    answer.seed = data["seed"]
                    return answer
                else:
                    answer.tokens += data["token_ids"]
                    if answer.first_seconds:
                        answer.pause_seconds = max(answer.pause_seconds, now - latest)
                    else:
                        answer.first_seconds = now - began
                    latest = now
            answer.error = answer.error or "the stream ended early"
    except httpx.HTTPError as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream. httpx also splits at other characters, which a JSON text may hold."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode()


def client_of(url: str) -> httpx.AsyncClient:
    """A client with as many connections as it has requests."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, limits=limits)


async def stream_all(url: str, bodies: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """Send all requests at once."""
    async with client_of(url) as client:
        return await asyncio.gather(*(stream(client, body) for body in bodies))


async def reference(bundles: FakeBundles, answers: Iterable[Answer]) -> list[list[int]]:
    """The tokens of the same requests and seeds, from an engine without Ray."""
    fast = bundles.with_fields(delay=0.0)
    service = fast.open_model(fast.describe())
    await service.start()
    tokens = []
    for answer in answers:
        with service.engine.submit(fast.request(answer.body, answer.seed)) as generation:
            ids = [event.id async for event in generation.events() if hasattr(event, "id")]
        tokens.append(ids)
    await service.stop()
    return tokens
