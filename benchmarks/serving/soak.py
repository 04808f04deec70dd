"""Soak test: a mix of requests for a long time, and the growth of memory, files and threads.

The mix: prompts of all lengths, streaming and not, clients that disconnect early, and invalid
requests. All random choices follow from the seed and the number of the client.
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

CLIENTS = 12  # more than the usual eight slots of a bundle, so that some requests wait
INTERVAL = 5  # seconds between samples of the process
# Invalid requests, in addition to a prompt that exceeds every context.
_INVALID: tuple[dict[str, Any], ...] = (
    {},
    {"prompt": 1.5},
    {"prompt": "Hello", "temperature": -1},
    {"prompt": "Hello", "max_tokens": "many"},
)
_TOO_LONG = 40_000  # words

FIGURES = (
    Figure("resident_first_mb", "resident memory at the start, MB"),
    Figure("resident_peak_mb", "resident memory, peak, MB"),
    Figure("resident_last_mb", "resident memory at the end, MB"),
    Figure("growth_mb_per_hour", "growth in the second half, MB/hour"),
    Figure("files_first", "open files at the start"),
    Figure("files_last", "open files at the end"),
    Figure("threads_first", "threads at the start"),
    Figure("threads_last", "threads at the end"),
    Figure("requests", "requests"),
    Figure("unexpected", "unexpected responses"),
)


@dataclass(frozen=True, kw_only=True)
class MemorySample:
    """The resources of the server `seconds` after the start."""

    seconds: float
    resident_mb: float
    files: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class SoakResult:
    """Samples, number of requests by type, unexpected responses, and the health at the end."""

    samples: tuple[MemorySample, ...]
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


def growth(samples: Sequence[MemorySample]) -> float:
    """Growth of resident memory in the second half, in MB per hour, by least squares."""
    half = (samples[0].seconds + samples[-1].seconds) / 2
    late = [sample for sample in samples if sample.seconds >= half]
    if len(late) < 2:
        return float("nan")
    hours = [sample.seconds / 3600 for sample in late]
    return float(np.polyfit(hours, [sample.resident_mb for sample in late], 1)[0])


async def soak(server: Running, seconds: float, seed: str) -> SoakResult:
    """Send the mix of requests for `seconds`."""
    began = time.monotonic()
    samples = [_sample(server, began)]
    requests: Counter[str] = Counter()
    unexpected: list[str] = []

    async def run(number: int) -> None:
        soak_client = _Client(client, f"{seed}-{number}")
        while time.monotonic() < began + seconds:
            name, send = soak_client.choose()
            requests[name] += 1
            try:
                await send()
            except (RequestFailed, httpx.HTTPError) as error:
                unexpected.append(f"{name}: {type(error).__name__}: {error}")

    async with connect(server.url) as client:
        clients = asyncio.gather(*(run(number) for number in range(CLIENTS)))
        while not (await asyncio.wait({clients}, timeout=INTERVAL))[0]:
            samples.append(_sample(server, began))
        await clients
        healthy = await _healthy(client)
    samples.append(_sample(server, began))
    return SoakResult(
        samples=tuple(samples),
        requests=dict(requests),
        unexpected=tuple(unexpected),
        healthy=healthy,
    )


class _Client:
    """One client, which sends one request at a time."""

    def __init__(self, client: httpx.AsyncClient, seed: str) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._prompts = Prompts(seed)
        self._actions: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "stream": (8, self._stream),
            "complete": (4, self._complete),
            "long": (1, self._long),
            "disconnect from a stream": (2, self._disconnect_from_stream),
            "disconnect from an answer": (2, self._disconnect_from_answer),
            "invalid": (2, self._invalid),
        }

    def choose(self) -> tuple[str, Callable[[], Awaitable[None]]]:
        """A random next action, with its name."""
        weights = [weight for weight, _ in self._actions.values()]
        name = self._random.choices(list(self._actions), weights)[0]
        return name, self._actions[name][1]

    def _body(self) -> dict[str, Any]:
        words = self._random.randint(1, 200)
        return body_of(self._prompts.text(words), self._random.randint(1, 96))

    async def _stream(self) -> None:
        body = self._body()
        await ask(self._client, body["prompt"], body["max_tokens"])

    async def _long(self) -> None:
        await ask(self._client, self._prompts.text(self._random.randint(500, 1500)), 8)

    async def _complete(self) -> None:
        body = {**self._body(), "stream": False, "stream_options": None}
        answer = await self._client.post(PATH, json=body)
        if answer.status_code != 200:
            raise RequestFailed(f"{answer.status_code}: {answer.text}")
        tokens = answer.json()["usage"]["completion_tokens"]
        if tokens != body["max_tokens"]:
            raise RequestFailed(f"{tokens} tokens, expected {body['max_tokens']}")

    async def _disconnect_from_stream(self) -> None:
        lines = self._random.randint(0, 40)
        async with self._client.stream("POST", PATH, json=self._body()) as response:
            if response.status_code != 200:
                raise RequestFailed(f"{response.status_code}")
            async for _ in response.aiter_lines():
                lines -= 1
                if lines < 0:
                    return

    async def _disconnect_from_answer(self) -> None:
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
            raise RequestFailed(f"{answer.status_code} for an invalid request: {answer.text[:200]}")


def _sample(server: Running, began: float) -> MemorySample:
    return MemorySample(seconds=time.monotonic() - began, **asdict(resources(server.pid)))


async def _healthy(client: httpx.AsyncClient) -> bool:
    """Whether the server answers, and /health reports success."""
    try:
        await ask(client, "Hello", 4)
        return (await client.get("/health")).status_code == 200
    except (RequestFailed, httpx.HTTPError):
        return False
