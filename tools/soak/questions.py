"""Requests whose answers do not depend on chance, and what of an answer must not differ.

A question is asked once of the idle server, and its answer recorded; under load it must have the
same bits. Numbers are compared as JSON writes them, which is exact for floats.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.serving.load_client import Prompts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

COMPLETIONS, CHAT, EMBEDDINGS = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
_BOOKS, _BOOK_WORDS = 4, 600  # texts that many prompts begin with, for the prefix cache
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": [1, 2, 3]}},
    "required": ["city", "size"],
}
# What of an answer depends on when it was asked, or on what the server has cached.
_CHANGING = ("id", "created", "timings", "prompt_tokens_details")


class Rejected(Exception):
    """The answer has an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Incomplete(Exception):
    """A stream ended before its last event."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A request: the model is `model` or, with an adapter, `model:adapter`."""

    kind: str
    model: str
    adapter: str | None = None
    path: str = COMPLETIONS
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the request in a report."""
        return f"{self.kind}, {self.model}" + (f":{self.adapter}" if self.adapter else "")

    def payload(self) -> dict[str, Any]:
        """The body with the model."""
        return {**self.body, "model": self.model + (f":{self.adapter}" if self.adapter else "")}


def questions(
    model: str, adapter: str | None, *, chat: bool, rounds: int, seed: str
) -> Iterator[Question]:
    """Every kind of question, `rounds` of each."""
    chance = random.Random(f"{seed}-{model}-{adapter}")
    prompts = Prompts(f"{seed}-{model}-{adapter}")
    for _ in range(rounds):
        short = prompts.text(chance.randint(3, 60))
        bodies = _completions(chance, short, seed)
        for kind, body in bodies.items():
            yield Question(kind=kind, model=model, adapter=adapter, body=body)
        yield Question(
            kind="embedding", model=model, adapter=adapter, path=EMBEDDINGS, body={"input": short}
        )
        if chat:
            turn: dict[str, Any] = {
                "messages": [{"role": "user", "content": short}],
                "temperature": 0,
            }
            schema = {"type": "json_schema", "json_schema": {"name": "c", "schema": _SCHEMA}}
            formats: dict[str, dict[str, Any]] = {
                "chat": {"stream": True, "max_tokens": 12},
                "chat with a schema": {"response_format": schema, "max_tokens": 24},
            }
            for kind, more in formats.items():
                yield Question(
                    kind=kind, model=model, adapter=adapter, path=CHAT, body={**turn, **more}
                )


def _completions(chance: random.Random, short: str, seed: str) -> dict[str, dict[str, Any]]:
    """The bodies for POST /v1/completions, by kind; `short` is the prompt of most."""
    return {
        "greedy": {"prompt": short, "temperature": 0, "max_tokens": chance.randint(4, 24)},
        "sampled": {
            "prompt": short, "temperature": 0.9, "top_p": 0.95, "seed": chance.randint(0, 999),
            "max_tokens": chance.randint(4, 24), "stream": True,
        },
        "log-probabilities": {
            "prompt": short, "temperature": 0, "max_tokens": 4, "logprobs": 3,
        },
        "penalties": {
            "prompt": short, "temperature": 0.7, "seed": chance.randint(0, 999),
            "presence_penalty": 0.6, "frequency_penalty": 0.4, "max_tokens": 16,
        },
        "bias": {
            "prompt": short, "temperature": 0, "max_tokens": 12,
            "logit_bias": {str(chance.randint(10, 200)): chance.randint(1, 9)},
        },
        # An answer that goes on so repeats its prompt.
        "repeats": {
            "prompt": f"{short}\n{short}\n{short}\n", "temperature": 0, "max_tokens": 48,
        },
        "long": book_body(chance, seed),
        "grammar": {
            "prompt": short, "temperature": 0, "max_tokens": 12, "stream": True,
            "grammar": 'root ::= ("red" | "green" | "blue") " " [0-9]{1,4}',
        },
    }  # fmt: skip


def book_body(chance: random.Random, seed: str, fresh: str = "") -> dict[str, Any]:
    """A greedy request whose prompt begins as others do, and has `fresh` at its end."""
    book = Prompts(f"{seed}-book-{chance.randrange(_BOOKS)}").text(_BOOK_WORDS).split()
    start = " ".join(book[: chance.randint(150, _BOOK_WORDS)])
    return {"prompt": f"{start} {fresh}", "temperature": 0, "max_tokens": chance.randint(1, 6)}


async def ask(client: httpx.AsyncClient, question: Question) -> str:
    """The part of the answer that must not differ; raises Rejected, Incomplete, httpx.HTTPError."""
    body = question.payload()
    if body.get("stream"):
        async with client.stream("POST", question.path, json=body) as response:
            lines = [line async for line in response.aiter_lines()]
        if response.status_code != 200:
            raise Rejected(response.status_code, "".join(lines))
        return _streamed(lines)
    response = await client.post(question.path, json=body)
    if response.status_code != 200:
        raise Rejected(response.status_code, response.text)
    return json.dumps(_lasting(response.json()), sort_keys=True)


def _lasting(value: Any) -> Any:
    """The value without what changes from answer to answer."""
    if isinstance(value, dict):
        return {key: _lasting(part) for key, part in value.items() if key not in _CHANGING}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


def _streamed(lines: list[str]) -> str:
    """The text of a stream and why it ended, whatever pieces it came in."""
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    if not data or data[-1] != "[DONE]":
        raise Incomplete(f"the stream ended with {lines[-3:]}, expected [DONE]")
    events = [json.loads(text) for text in data[:-1]]
    choices = [choice for event in events for choice in event.get("choices", ())]
    text = "".join(_piece(choice) for choice in choices)
    reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    prints = sorted({event.get("system_fingerprint", "") for event in events})
    return json.dumps([text, reasons, prints])


def _piece(choice: dict[str, Any]) -> str:
    piece: str = choice.get("text") or choice.get("delta", {}).get("content") or ""
    return piece
