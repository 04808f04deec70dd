"""A mix of requests for a long time, and whether the server's memory, files or threads grow.

The mix: prompts of all lengths, streams and whole answers, clients that leave half way, and
requests that must be refused. Every random choice follows from the seed and the client's number.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from benchmarks.report.figures import Figure
from benchmarks.serving.load_client import PATH, Prompts, RequestFailed, ask, body_of, connect
from benchmarks.serving.server_process import resources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.serving.server_process import Running

CLIENTS = 12  # more than a bundle's usual eight slots, so that some always wait
INTERVAL = 5  # seconds between two looks at the process
# What must be refused, besides a prompt that is longer than any context.
_INVALID: tuple[dict[str, Any], ...] = (
    {},
    {"prompt": 1.5},
    {"prompt": "Hello", "temperature": -1},
    {"prompt": "Hello", "no_such_field": 1},
)
_TOO_LONG = 40_000  # words

FIGURES = (
    Figure("resident_first_mb", "resident at first, MB"),
    Figure("resident_peak_mb", "resident, peak, MB"),
    Figure("resident_last_mb", "resident at last, MB"),
    Figure("growth_mb_per_hour", "growth over the second half, MB/hour"),
    Figure("files_first", "open files at first"),
    Figure("files_last", "open files at last"),
    Figure("threads_first", "threads at first"),
    Figure("threads_last", "threads at last"),
    Figure("requests", "requests"),
    Figure("unexpected", "requests that did not end as they should"),
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the server held so many seconds after the beginning."""

    seconds: float
    resident_mb: float
    files: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What was seen: samples, requests by kind, what went wrong, and how the server was after."""

    samples: tuple[Sample, ...]
    requests: dict[str, int]
    unexpected: tuple[str, ...]
    healthy: bool

    def figures(self) -> dict[str, float]:
        """The rows of the table."""
        first, last = self.samples[0], self.samples[-1]
        return {
            "resident_first_mb": first.resident_mb,
            "resident_peak_mb": max(sample.resident_mb for sample in self.samples),
            "resident_last_mb": last.resident_mb,
            "growth_mb_per_hour": growth(self.samples),
            "files_first": first.files,
            "files_last": last.files,
            "threads_first": first.threads,
            "threads_last": last.threads,
            "requests": sum(self.requests.values()),
            "unexpected": len(self.unexpected),
        }


def growth(samples: Sequence[Sample]) -> float:
    """MB an hour of resident memory over the second half of the time, by least squares."""
    half = (samples[0].seconds + samples[-1].seconds) / 2
    late = [sample for sample in samples if sample.seconds >= half]
    if len(late) < 2:
        return float("nan")
    hours = [sample.seconds / 3600 for sample in late]
    return float(np.polyfit(hours, [sample.resident_mb for sample in late], 1)[0])


async def soak(server: Running, seconds: float, seed: str) -> Soaked:
    """Serve the mix for so many seconds."""
    began = time.monotonic()
    samples = [_sample(server, began)]
    requests: Counter[str] = Counter()
    unexpected: list[str] = []

    async def run(number: int) -> None:
        visitor = _Visitor(client, f"{seed}-{number}")
        while time.monotonic() < began + seconds:
            kind, visit = visitor.choose()
            requests[kind] += 1
            try:
                await visit()
            except (RequestFailed, httpx.HTTPError) as error:
                unexpected.append(f"{kind}: {type(error).__name__}: {error}")

    async with connect(server.url) as client:
        visitors = asyncio.gather(*(run(number) for number in range(CLIENTS)))
        while not (await asyncio.wait({visitors}, timeout=INTERVAL))[0]:
            samples.append(_sample(server, began))
        await visitors
        healthy = await _healthy(client)
    samples.append(_sample(server, began))
    return Soaked(
        samples=tuple(samples),
        requests=dict(requests),
        unexpected=tuple(unexpected),
        healthy=healthy,
    )


class _Visitor:
    """One client, which does one thing after the other."""

    def __init__(self, client: httpx.AsyncClient, seed: str) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._prompts = Prompts(seed)
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "stream": (8, self._stream),
            "whole": (4, self._whole),
            "long": (1, self._long),
            "left a stream": (2, self._leave_stream),
            "left an answer": (2, self._leave_answer),
            "invalid": (2, self._invalid),
        }

    def choose(self) -> tuple[str, Callable[[], Awaitable[None]]]:
        """The next thing to do, and what it is called."""
        weights = [weight for weight, _ in self._kinds.values()]
        kind = self._random.choices(list(self._kinds), weights)[0]
        return kind, self._kinds[kind][1]

    def _body(self) -> dict[str, Any]:
        words = self._random.randint(1, 200)
        return body_of(self._prompts.text(words), self._random.randint(1, 96))

    async def _stream(self) -> None:
        body = self._body()
        await ask(self._client, body["prompt"], body["max_tokens"])

    async def _long(self) -> None:
        await ask(self._client, self._prompts.text(self._random.randint(500, 1500)), 8)

    async def _whole(self) -> None:
        body = {**self._body(), "stream": False, "stream_options": None}
        answer = await self._client.post(PATH, json=body)
        if answer.status_code != 200:
            raise RequestFailed(f"{answer.status_code}: {answer.text}")
        found = answer.json()["usage"]["completion_tokens"]
        if found != body["max_tokens"]:
            raise RequestFailed(f"{found} tokens, wanted {body['max_tokens']}")

    async def _leave_stream(self) -> None:
        lines = self._random.randint(0, 40)
        async with self._client.stream("POST", PATH, json=self._body()) as response:
            if response.status_code != 200:
                raise RequestFailed(f"{response.status_code}")
            async for _ in response.aiter_lines():
                lines -= 1
                if lines < 0:
                    return

    async def _leave_answer(self) -> None:
        body = {**self._body(), "stream": False, "stream_options": None}
        try:
            await self._client.post(PATH, json=body, timeout=self._random.uniform(0.01, 2))
        except httpx.TimeoutException:
            return

    async def _invalid(self) -> None:
        too_long = {"prompt": self._prompts.text(_TOO_LONG)}
        content = self._random.choice((*_INVALID, too_long, b"{"))
        if isinstance(content, bytes):
            answer = await self._client.post(PATH, content=content)
        else:
            answer = await self._client.post(PATH, json=content)
        if not 400 <= answer.status_code < 500:
            raise RequestFailed(f"{answer.status_code} for what is invalid: {answer.text[:200]}")


def _sample(server: Running, began: float) -> Sample:
    return Sample(seconds=time.monotonic() - began, **asdict(resources(server.pid)))


async def _healthy(client: httpx.AsyncClient) -> bool:
    """Whether the server says that it is well, and answers."""
    try:
        await ask(client, "Hello", 4)
        return (await client.get("/health")).status_code == 200
    except (RequestFailed, httpx.HTTPError):
        return False
