"""Load scenarios and their figures: rates in tokens/s, times in ms.

Every scenario uses prompts that no server has cached.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report.figures import Figure
from benchmarks.serving.load_client import Answer, Prompts, RequestFailed, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

SHORT, LONG = 100, 1000  # words per prompt, about one token each
TOKENS = 64  # per measured answer
FEW_TOKENS = 8  # per answer where only the first token is measured
GENERATING = 4  # clients that generate during the long prompts
LONG_PROMPTS = 5
PROBES = (0.1, 0.4)  # seconds from a long prompt to a short one
HOT_PROMPTS, REPEATS = 3, 2


@dataclass(kw_only=True)
class Requester:
    """Sends requests to a server and collects failures instead of raising them."""

    client: httpx.AsyncClient
    prompts: Prompts
    failures: list[str] = field(default_factory=list)

    async def ask(self, words: int, tokens: int) -> Answer | None:
        """Send a new prompt; returns the answer, or None if the request failed."""
        return await self.ask_for(self.prompts.text(words), tokens)

    async def ask_for(self, prompt: str, tokens: int) -> Answer | None:
        """Send a prompt; returns the answer, or None if the request failed."""
        try:
            return await ask(self.client, prompt, tokens)
        except RequestFailed as error:
            self.failures.append(str(error))
            return None


def throughput_figures(clients: int) -> tuple[Figure, ...]:
    """The figures of `throughput`, and the share of the engine's own rate."""
    return (
        Figure(f"{clients}_rate", f"{clients} clients, tokens/s", higher_is_better=True),
        Figure(f"{clients}_share", "  share of the engine without HTTP", higher_is_better=True),
        Figure(f"{clients}_first_p50", "  first token, p50, ms"),
        Figure(f"{clients}_first_p95", "  first token, p95, ms"),
        Figure(f"{clients}_gap_p50", "  between tokens, p50, ms"),
        Figure(f"{clients}_gap_p95", "  between tokens, p95, ms"),
    )


async def throughput(requester: Requester, clients: int, requests: int) -> dict[str, float]:
    """Every client sends `requests` requests, one at a time."""

    async def run() -> list[Answer | None]:
        return [await requester.ask(SHORT, TOKENS) for _ in range(requests)]

    began = time.perf_counter()
    answers = _received(
        [a for batch in await asyncio.gather(*(run() for _ in range(clients))) for a in batch]
    )
    seconds = time.perf_counter() - began
    first = [answer.first_token for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps()]
    prompts = [answer.prompt_tokens for answer in answers]
    return {
        f"{clients}_prompt_tokens": sum(prompts) / max(1, len(prompts)),
        f"{clients}_rate": sum(answer.tokens for answer in answers) / seconds,
        f"{clients}_first_p50": percentile_ms(first, 50),
        f"{clients}_first_p95": percentile_ms(first, 95),
        f"{clients}_gap_p50": percentile_ms(gaps, 50),
        f"{clients}_gap_p95": percentile_ms(gaps, 95),
    }


LONG_FIGURES = (
    Figure(
        "long_first_p50", f"{LONG}-word prompt, {GENERATING} others generate: first token, p50, ms"
    ),
    Figure("beside_gap_p95", "  the others, between tokens, p95, ms"),
    Figure("beside_gap_max", "  the others, between tokens, longest, ms"),
    Figure("probe_first_p50", "  short prompt meanwhile, first token, p50, ms"),
    Figure("probe_first_p95", "  short prompt meanwhile, first token, p95, ms"),
)


async def long_prompts(requester: Requester) -> dict[str, float]:
    """Send long prompts, one at a time, while other clients generate and send short prompts."""
    over = False

    async def generate() -> list[Answer | None]:
        answers = []
        while not over:
            answers.append(await requester.ask(SHORT, TOKENS))
        return answers

    async def probe(delay: float) -> Answer | None:
        await asyncio.sleep(delay)
        return await requester.ask(SHORT, FEW_TOKENS)

    others = [asyncio.create_task(generate()) for _ in range(GENERATING)]
    longs, probes = [], []
    for _ in range(LONG_PROMPTS):
        long, *short = await asyncio.gather(requester.ask(LONG, FEW_TOKENS), *map(probe, PROBES))
        longs.append(long)
        probes += short
    over = True
    beside = _received([answer for batch in await asyncio.gather(*others) for answer in batch])
    reading = [(answer.sent, answer.arrivals[0]) for answer in _received(longs)]
    gaps = [gap for answer in beside for gap in answer.gaps(reading)]
    # A short prompt counts if the long prompt was still in prefill when it was sent.
    caught = [
        answer.first_token
        for answer in _received(probes)
        if any(start < answer.sent < stop for start, stop in reading)
    ]
    return {
        "long_first_p50": percentile_ms([stop - start for start, stop in reading], 50),
        "beside_gap_p95": percentile_ms(gaps, 95),
        "beside_gap_max": percentile_ms(gaps, 100),
        "probe_first_p50": percentile_ms(caught, 50),
        "probe_first_p95": percentile_ms(caught, 95),
    }


HOT_FIGURES = (
    Figure("cold_first", f"{LONG}-word prompt alone: first token, p50, ms"),
    Figure("hot_first", "  the same prompt again (cached), p50, ms"),
)


async def hot_prompts(requester: Requester) -> dict[str, float]:
    """Send a long prompt, and again when the server has cached it."""
    cold, hot = [], []
    for _ in range(HOT_PROMPTS):
        prompt = requester.prompts.text(LONG)
        cold.append(await requester.ask_for(prompt, FEW_TOKENS))
        hot += [await requester.ask_for(prompt, FEW_TOKENS) for _ in range(REPEATS)]
    return {
        "cold_first": percentile_ms([answer.first_token for answer in _received(cold)], 50),
        "hot_first": percentile_ms([answer.first_token for answer in _received(hot)], 50),
    }


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    """The percentile in milliseconds, interpolated linearly; NaN without values."""
    return float(np.percentile(seconds, percent)) * 1e3 if seconds else float("nan")


def _received(answers: Sequence[Answer | None]) -> list[Answer]:
    return [answer for answer in answers if answer is not None]
