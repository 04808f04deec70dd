"""What is asked of a server, and the figures of it; rates in tokens a second, times in ms.

Each scenario takes a client and prompts that no server has seen, and knows nothing of who answers.
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

SHORT, LONG = 100, 1000  # words of a prompt, each about a token
TOKENS = 64  # of an answer that is measured
FEW_TOKENS = 8  # of one of which only the beginning is
GENERATING = 4  # clients beside the long prompts
LONG_PROMPTS = 5
PROBES = (0.1, 0.4)  # seconds after a long prompt, when a short one follows it
HOT_PROMPTS, REPEATS = 3, 2


@dataclass(kw_only=True)
class Asker:
    """One server's client; it counts what fails, for a benchmark does not end by it."""

    client: httpx.AsyncClient
    prompts: Prompts
    failures: list[str] = field(default_factory=list)

    async def ask(self, words: int, tokens: int) -> Answer | None:
        """The answer to a new prompt, or None if the request failed."""
        return await self.ask_for(self.prompts.text(words), tokens)

    async def ask_for(self, prompt: str, tokens: int) -> Answer | None:
        """The answer to a prompt, or None if the request failed."""
        try:
            return await ask(self.client, prompt, tokens)
        except RequestFailed as error:
            self.failures.append(str(error))
            return None


def throughput_figures(clients: int) -> tuple[Figure, ...]:
    """The rows of `throughput`."""
    return (
        Figure(f"{clients}_rate", f"{clients} clients, tokens/s", higher_is_better=True),
        Figure(f"{clients}_first_p50", "  first token, p50, ms"),
        Figure(f"{clients}_first_p95", "  first token, p95, ms"),
        Figure(f"{clients}_gap_p50", "  between tokens, p50, ms"),
        Figure(f"{clients}_gap_p95", "  between tokens, p95, ms"),
    )


async def throughput(asker: Asker, clients: int, requests: int) -> dict[str, float]:
    """Each of the clients sends so many requests, one after the other."""

    async def run() -> list[Answer | None]:
        return [await asker.ask(SHORT, TOKENS) for _ in range(requests)]

    began = time.perf_counter()
    answers = _whole(
        [a for found in await asyncio.gather(*(run() for _ in range(clients))) for a in found]
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
    Figure("long_first_p50", f"{LONG} beside {GENERATING}, first token, p50, ms"),
    Figure("beside_gap_p95", "  others, between tokens, p95, ms"),
    Figure("beside_gap_max", "  others, between tokens, longest, ms"),
    Figure("probe_first_p50", "  short beside, first token, p50, ms"),
    Figure("probe_first_p95", "  short beside, first token, p95, ms"),
)


async def long_prompts(asker: Asker) -> dict[str, float]:
    """Long prompts, one after the other, while clients generate and short prompts come."""
    over = False

    async def generate() -> list[Answer | None]:
        found = []
        while not over:
            found.append(await asker.ask(SHORT, TOKENS))
        return found

    async def probe(delay: float) -> Answer | None:
        await asyncio.sleep(delay)
        return await asker.ask(SHORT, FEW_TOKENS)

    others = [asyncio.create_task(generate()) for _ in range(GENERATING)]
    longs, probes = [], []
    for _ in range(LONG_PROMPTS):
        long, *short = await asyncio.gather(asker.ask(LONG, FEW_TOKENS), *map(probe, PROBES))
        longs.append(long)
        probes += short
    over = True
    beside = _whole([answer for found in await asyncio.gather(*others) for answer in found])
    reading = [(answer.sent, answer.arrivals[0]) for answer in _whole(longs)]
    gaps = [gap for answer in beside for gap in answer.gaps(reading)]
    # A probe counts if the long prompt was still being read when it was sent.
    caught = [
        answer.first_token
        for answer in _whole(probes)
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
    Figure("cold_first", f"{LONG} alone, first token, p50, ms"),
    Figure("hot_first", "  the same again, p50, ms"),
)


async def hot_prompts(asker: Asker) -> dict[str, float]:
    """A long prompt, and the same again when it is in the server's cache."""
    cold, hot = [], []
    for _ in range(HOT_PROMPTS):
        prompt = asker.prompts.text(LONG)
        cold.append(await asker.ask_for(prompt, FEW_TOKENS))
        hot += [await asker.ask_for(prompt, FEW_TOKENS) for _ in range(REPEATS)]
    return {
        "cold_first": percentile_ms([answer.first_token for answer in _whole(cold)], 50),
        "hot_first": percentile_ms([answer.first_token for answer in _whole(hot)], 50),
    }


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    """The percentile in milliseconds, linear between neighbours; NaN of nothing."""
    return float(np.percentile(seconds, percent)) * 1e3 if seconds else float("nan")


def _whole(answers: Sequence[Answer | None]) -> list[Answer]:
    return [answer for answer in answers if answer is not None]
