"""Measure the engine of a bundle without HTTP, and print its tokens/s as one line of JSON.

    python -m benchmarks.engines.engine_worker BUNDLE --clients 1 8 --requests 3 --seed 0

The requests are those that `throughput` sends to a server: the same prompts, options and number of
clients. Prompts are token ids and no token becomes text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.serving.load_client import Prompts
from benchmarks.serving.load_scenarios import SHORT, TOKENS
from benchmarks.serving.server_commands import CACHE_MB
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prompt import Prompt
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.server.services.language_service import LocalLanguageService

# What load_client.body_of asks for.
_SAMPLING = SamplingOptions(temperature=0, ignore_eos=True)


async def rate(
    service: LocalLanguageService, prompts: Prompts, clients: int, requests: int
) -> float:
    """Tokens/s of `clients` clients that each send `requests` requests, one at a time."""

    async def answered(prompt: tuple[int, ...]) -> int:
        request = Request(prompt=Prompt(prompt), max_tokens=TOKENS, sampling=_SAMPLING, seed=0)
        with service.engine.submit(request) as generation:
            return sum([isinstance(event, Token) async for event in generation.events()])

    async def run() -> int:
        texts = (prompts.text(SHORT) for _ in range(requests))
        return sum([await answered(service.tokenizer.encode(text)) for text in texts])

    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*(run() for _ in range(clients))))
    return tokens / (time.perf_counter() - began)


async def rates(
    service: LocalLanguageService, seed: str, clients: Sequence[int], requests: int
) -> dict[int, float]:
    """The tokens/s by the number of clients."""
    service.engine.start()
    try:
        await rate(service, Prompts(f"{seed}-warm-up"), 1, 1)
        prompts = Prompts(seed)
        return {number: await rate(service, prompts, number, requests) for number in clients}
    finally:
        service.engine.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", default="0")
    arguments = parser.parse_args()
    options = EngineOptions(cache_ram=CACHE_MB * 2**20)
    service = open_language_service(arguments.bundle, threads=arguments.threads, options=options)
    measured = asyncio.run(rates(service, arguments.seed, arguments.clients, arguments.requests))
    json.dump(measured, sys.stdout)


if __name__ == "__main__":
    main()
