"""A streaming client of /v1/completions that records when each piece of text arrives.

All servers get the same requests. A request fails unless its answer is complete and has the
requested number of tokens. Times are seconds of time.perf_counter.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = "/v1/completions"
# Each is one token of Gemma's vocabulary, with the space before it.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea kid body information back "
    "parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education"
).split()


class RequestFailed(Exception):
    """The answer is incomplete or an error; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The times of a request and of each piece of its answer; lengths in tokens."""

    sent: float
    arrivals: tuple[float, ...]
    prompt_tokens: int
    tokens: int

    @property
    def first_token(self) -> float:
        """Seconds from the request to the first piece of text."""
        return self.arrivals[0] - self.sent

    def gaps(self, spans: Sequence[tuple[float, float]] = ((0, float("inf")),)) -> list[float]:
        """Seconds between pieces of text; only gaps that overlap one of the time spans."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return [
            after - before
            for before, after in pairs
            if any(start < after and before < stop for start, stop in spans)
        ]


class Prompts:
    """Texts with different starts, so that none is cached; equal seeds give equal texts."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def text(self, words: int) -> str:
        """A text of `words` words and about the same number of tokens."""
        return " ".join(self._random.choices(_WORDS, k=words))


def connect(url: str) -> httpx.AsyncClient:
    """An HTTP client with a new connection for every request.

    llama-server may close an idle connection just when the client reuses it, which would count as a
    failure.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, timeout=600, limits=limits)


def body_of(prompt: str, tokens: int) -> dict[str, Any]:
    """The body of a greedy, streaming request for exactly `tokens` tokens."""
    return {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def ask(client: httpx.AsyncClient, prompt: str, tokens: int, **fields: object) -> Answer:
    """Send a prompt, with more fields of the body, and read its answer; raises RequestFailed."""
    sent = time.perf_counter()
    try:
        async with client.stream("POST", PATH, json=body_of(prompt, tokens) | fields) as response:
            lines = [(time.perf_counter(), line) async for line in response.aiter_lines()]
    except httpx.HTTPError as error:
        raise RequestFailed(f"{type(error).__name__}: {error}") from error
    if response.status_code != 200:
        raise RequestFailed(f"{response.status_code}: {lines}")
    # Parse after the measurement: the client shares the machine with the server.
    return _answer(sent, lines, tokens)


def _answer(sent: float, lines: list[tuple[float, str]], tokens: int) -> Answer:
    data = [(at, line[6:]) for at, line in lines if line.startswith("data: ")]
    if not data or data[-1][1] != "[DONE]":
        raise RequestFailed(f"the stream ended with {lines[-3:]}, expected [DONE]")
    events = [(at, json.loads(text)) for at, text in data[:-1]]
    usages = [event["usage"] for _, event in events if event.get("usage")]
    if len(usages) != 1 or usages[0]["completion_tokens"] != tokens:
        raise RequestFailed(f"usage {usages}, expected {tokens} tokens")
    arrivals = [
        at for at, event in events if any(choice["text"] for choice in event.get("choices", ()))
    ]
    if not arrivals:
        raise RequestFailed("the answer has no text")
    return Answer(
        sent=sent,
        arrivals=tuple(arrivals),
        prompt_tokens=usages[0]["prompt_tokens"],
        tokens=tokens,
    )
