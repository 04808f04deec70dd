"""Ask two servers the same mixed questions, and count the answers that differ by a bit.

    hearth serve smollm2 --port 8080
    hearth serve smollm2 --port 8081 --speculation off
    python -m tools.soak.same_answers http://127.0.0.1:8080 http://127.0.0.1:8081 --questions 1000

The questions are the same as in the soak: greedy and sampled, long prompts with a common start,
grammars, schemas, penalties, biases, log-probabilities, embeddings, streams. Each server gets them
from several clients at once. Exit code 1 if an answer differs or is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from typing import TYPE_CHECKING

import httpx

from tools.soak.questions import Incomplete, Rejected, ask, questions

if TYPE_CHECKING:
    from tools.soak.questions import Question

_TIMEOUT = 600  # seconds of a request


async def _answers(url: str, asked: list[Question], clients: int) -> list[str | Exception]:
    """The answers or errors of a server, in the order of the questions."""
    answers: list[str | Exception] = [""] * len(asked)
    pending = iter(enumerate(asked))

    async def work(client: httpx.AsyncClient) -> None:
        for number, question in pending:
            try:
                answers[number] = await ask(client, question)
            except (Rejected, Incomplete, httpx.HTTPError) as error:
                answers[number] = error

    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    return answers


async def compare(urls: tuple[str, str], asked: list[Question], clients: int) -> list[str]:
    """A line for each question whose answers differ or are errors."""
    answers = [await _answers(url, asked, clients) for url in urls]
    return [
        f"{question.name}: {question.body}\n  {first!r}\n  {second!r}\n"
        for question, first, second in zip(asked, *answers, strict=True)
        if first != second or isinstance(first, Exception)
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("urls", nargs=2, metavar="URL")
    parser.add_argument("--model", default="default", help="the name that requests have")
    parser.add_argument("--adapter", help="one that both servers have loaded")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=3, help="requests at a time")
    parser.add_argument("--completions-only", action="store_true", help="for a base model")
    parser.add_argument("--seed", default="0")
    arguments = parser.parse_args()
    every = questions(
        arguments.model,
        arguments.adapter,
        chat=not arguments.completions_only,
        rounds=arguments.questions,
        seed=arguments.seed,
    )
    asked = list(itertools.islice(every, arguments.questions))
    different = asyncio.run(compare(tuple(arguments.urls), asked, arguments.clients))
    sys.stdout.writelines(different)
    sys.stdout.write(f"{len(asked)} questions, {len(different)} answers differ\n")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
