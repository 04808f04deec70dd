"""Make the texts that a drafter learns, and score it on others: chat, code and JSON.

    python -m benchmarks.drafts.drafter_texts answers smollm2-bundle --out answers.jsonl
    hearth tune smollm2 --drafter --data answers.jsonl --out drafter
    hearth bake smollm2 --drafter drafter --out drafting
    python -m benchmarks.drafts.drafter_texts score drafting --verify 2=1.23 4=1.69 --draft 0.09

`answers` writes answers of the model of a bundle to the prompts of PROMPTS. `score` answers those
of HELD_OUT, which has other topics, tasks and records, without drafts, with prompt lookup, and with
the drafter too. A different token ends it. What is drafted depends on how long calls take; `score`
takes the given times, in decodes, so its tables do not depend on what else the machine does. The
speed is the speed of all calls by these times, over plain decoding. `drafter_speed.py`
measures it.

A model with a chat template is asked; another one continues the beginning of a page.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from benchmarks.inputs import existing_bundle
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import TOKENIZER
from hearthd.runtime.interface import LOGIT_MARGIN
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafting.drafts import Costs
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prompt import Prompt
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime

_LEARNED = {
    "chat": (
        "the sky at night, bread, volcanoes, bicycles, the Roman Empire, chess, coffee, black holes"
        ", libraries, the human heart, solar panels, jazz, glaciers, honey bees, tea, vaccines, "
        "dinosaurs, sleep, magnets, rainbows, whales, databases, yoga, earthquakes, penguins, "
        "recycling, lighthouses, tides, running, olive oil, the Moon, forests, cheese, clouds, "
        "soap, deserts, the steam engine, memory, airplanes, rice, democracy, guitars, paper, "
        "coral reefs, wolves, mathematics, knitting, batteries"
    ),
    "code": (
        "reverse a string, test for primes, compute factorials, find the largest number, count "
        "vowels, sort a list, remove duplicates, compute Fibonacci numbers, read a CSV file, merge "
        "dictionaries, find palindromes, convert temperatures, compute the greatest common "
        "divisor, count words, flatten a list, implement a stack, implement a queue, make "
        "passwords, compute an average, check email addresses, search a sorted list, parse dates, "
        "group people by age, transpose a matrix, sum digits, find anagrams, draw a triangle, roll "
        "dice, convert to binary, implement a linked list, shuffle cards, find the longest word, "
        "write log messages, download a page, rename files, check parentheses"
    ),
    "JSON": (
        "a book, a user, a recipe, an order, a movie, a weather forecast, cities, a playlist, a "
        "company, a flight, a shopping cart, a calendar, a student, a car, an invoice, contacts, a "
        "blog post, products, a hotel booking, a game character, the configuration of a server, "
        "planets, a menu, a to-do list, a bank account, landmarks, a quiz, a survey, a timetable"
    ),
}
_HELD_OUT = {
    "chat": "rivers, the violin, insurance, elephants, the compass, skiing, Egypt, refrigerators",
    "code": (
        "compute the median, count letters, find the shortest path, format phone numbers, rotate a "
        "list, convert Roman numerals, compute the area of a polygon, print a multiplication table"
    ),
    "JSON": (
        "a library, a patient, a museum, a football team, a parcel, a garden, a course, a shop"
    ),
}
# By kind: requests to a model with a chat template, and beginnings for another one.
_ASKED = {
    "chat": (
        "Explain {} to a child.",
        "Write a short story about {}.",
        "Give me three facts about {}.",
        "Write a paragraph about the history of {}.",
    ),
    "code": (
        "Write a Python function to {}.",
        "Write a JavaScript function to {}.",
        "Write a Python program to {}, with an example of its use.",
        "Write a Python class and tests to {}.",
    ),
    "JSON": (
        "Write a JSON object about {}.",
        "Make up data about {}. Answer with JSON only.",
        "Give an example of a list of JSON objects about {}.",
    ),
}
_BEGUN = {
    "chat": (
        "Question: What should I know about {}?\nAnswer:",
        "User: Tell me a story about {}.\nAssistant: Once upon a time",
        "Three facts about {}:\n\n1.",
        "A short history of {}\n\n",
    ),
    "code": (
        "# A Python function to {}\n\ndef ",
        "// A JavaScript function to {}\nfunction ",
        '"""A Python program to {}."""\n\nimport ',
        "# A Python class to {}, with tests\n\nclass ",
    ),
    "JSON": (
        'Data about {}:\n\n```json\n{{\n  "',
        'An example of JSON about {}: {{"',
        'A JSON list of objects about {}:\n\n[\n  {{\n    "',
    ),
}
TEMPERATURES = (0.0, 0.8)
MODES = ("off", "lookup", "auto")  # as --speculation


def prompts(*, held_out: bool, asked: bool) -> list[tuple[str, str]]:
    """Kinds and texts of prompts; of the held-out topics, each has one form."""
    found = []
    for kind, topics in (_HELD_OUT if held_out else _LEARNED).items():
        forms = (_ASKED if asked else _BEGUN)[kind]
        for number, topic in enumerate(topics.split(", ")):
            chosen = [forms[number % len(forms)]] if held_out else forms
            found += [(kind, form.format(topic)) for form in chosen]
    return found


class GivenCosts(Costs):
    """Times of calls in decodes that are given, not measured."""

    def __init__(self, verify: Mapping[int, float], draft: float) -> None:
        super().__init__(tuple(sorted(verify)))
        self.add(1, 1.0)
        self._verify, self._draft = {1: 1.0, **verify}, draft

    @override
    def of(self, size: int) -> float:
        return self._verify[size]

    @property
    @override
    def of_draft(self) -> float:
        return self._draft

    @override
    def in_calls(self, seconds: float) -> float:
        return self._draft


class CountingRuntime:
    """A runtime that counts the time of its calls by given costs; other calls are the runtime's."""

    def __init__(self, runtime: Runtime, costs: GivenCosts) -> None:
        self._runtime, self._costs = runtime, costs
        self.decodes = 0.0  # the time so far
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def decode(self, *arguments: Any) -> NDArray[Any]:
        """See Reader."""
        self.decodes += 1
        self.steps += 1
        return self._runtime.decode(*arguments)

    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterator[NDArray[Any]]:
        """See Runtime."""
        self.decodes += self._costs.to_verify(len(tokens) - 1)
        self.steps += 1
        return self._runtime.verify(slot, tokens, start, margin=margin)

    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        """See DraftingReader."""
        for drafted in self._runtime.draft(slot, token, position):
            self.decodes += self._costs.of_draft
            yield drafted


@dataclass(frozen=True)
class Answer:
    """The tokens of an answer, and the time from the first one to the last."""

    ids: tuple[int, ...]
    seconds: float


class Writer:
    """Answers prompts with a model."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        eos: Sequence[int],
        max_tokens: int,
    ) -> None:
        self.runtime, self.tokenizer, self.template = runtime, tokenizer, template
        self._eos, self._max_tokens = eos, max_tokens

    @classmethod
    def opened(cls, bundle: Path, threads: int, max_tokens: int) -> Writer:
        """Answers with the model of a bundle."""
        manifest, runtime = open_bundle(bundle, threads=threads)
        special = manifest.special_tokens
        tokenizer = Tokenizer.from_file(bundle / TOKENIZER, bos=special.bos)
        template = ChatTemplate.from_bundle(bundle, tokenizer, special)
        return cls(runtime, tokenizer, template, special.eos, max_tokens)

    def answers(
        self,
        texts: Sequence[tuple[str, float]],
        *,
        runtime: Runtime,
        costs: Mapping[int, Costs] | None = None,
        uses_drafter: bool = False,
        at_once: int = 1,
    ) -> Iterator[Answer]:
        """The answer to each text at a temperature."""
        engine = Engine(
            runtime,
            eos=self._eos,
            queue_limit=at_once,
            costs=costs,
            uses_drafter=uses_drafter,
        )
        engine.start()
        try:
            for start in range(0, len(texts), at_once):
                yield from asyncio.run(self._together(engine, texts[start : start + at_once]))
        finally:
            engine.close()

    async def _together(self, engine: Engine, texts: Sequence[tuple[str, float]]) -> list[Answer]:
        return await asyncio.gather(*(self._answer(engine, *text) for text in texts))

    async def _answer(self, engine: Engine, text: str, temperature: float) -> Answer:
        request = Request(
            prompt=Prompt(self.ids(text)),
            max_tokens=self._max_tokens,
            sampling=SamplingOptions(temperature=temperature),
            seed=len(text),
        )
        with engine.submit(request) as generation:
            events = [(time.perf_counter(), event) async for event in generation.events()]
        tokens = [(at, event.id) for at, event in events if isinstance(event, Token)]
        return Answer(tuple(token for _, token in tokens), tokens[-1][0] - tokens[0][0])

    def ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a prompt."""
        if self.template is None:
            return self.tokenizer.encode(text)
        return self.template.prompt([{"role": "user", "content": text}]).ids


def write_answers(writer: Writer, out: Path, at_once: int) -> None:
    """Write a line for `hearth tune` per answer; prompts are in random order."""
    texts = prompts(held_out=False, asked=writer.template is not None)
    asked = [(text, temperature) for temperature in TEMPERATURES for _, text in texts]
    answers = writer.answers(asked, runtime=writer.runtime, at_once=at_once)
    with out.open("w") as file:
        for (text, _), answer in zip(asked, answers, strict=True):
            file.write(
                json.dumps(_example(text, writer.tokenizer.decode(answer.ids), writer)) + "\n"
            )
            file.flush()


def _example(text: str, answer: str, writer: Writer) -> dict[str, Any]:
    if writer.template is None:
        return {"prompt": text, "completion": answer}
    pair = (("user", text), ("assistant", answer))
    return {"messages": [{"role": role, "content": content} for role, content in pair]}


def score(writer: Writer, verify: Mapping[int, float], draft: float) -> Table:
    """Answer the held-out prompts in each mode; raises SystemExit if a token differs."""
    if set(verify) != set(writer.runtime.verify_tokens):
        raise SystemExit(f"--verify: the bundle has the sizes {writer.runtime.verify_tokens}")
    texts = prompts(held_out=True, asked=writer.template is not None)
    modes = MODES if writer.runtime.has_drafter else MODES[:2]
    rows, speeds = [], defaultdict[tuple[float, str], list[float]](list)
    for temperature, kind in itertools.product(TEMPERATURES, _HELD_OUT):
        asked = [(text, temperature) for of_kind, text in texts if of_kind == kind]
        plain: list[tuple[int, ...]] = []
        row = [kind, f"{temperature:g}"]
        for mode in modes:
            costs = GivenCosts(verify, draft)
            runtime = CountingRuntime(writer.runtime, costs)
            written = writer.answers(
                asked,
                runtime=cast("Runtime", runtime),
                costs=None if mode == "off" else {1: costs},
                uses_drafter=mode == "auto",
            )
            answers = [answer.ids for answer in written]
            plain = plain or answers
            if answers != plain:
                raise SystemExit(f"{kind} at temperature {temperature}: the answers differ")
            tokens = sum(map(len, answers))
            if mode != "off":
                speeds[temperature, mode].append(tokens / runtime.decodes)
                row += [f"{tokens / runtime.steps:.2f}", f"{tokens / runtime.decodes:.2f}"]
        rows.append((*row, f"{tokens}"))
    for temperature in TEMPERATURES:
        means = [statistics.geometric_mean(speeds[temperature, mode]) for mode in modes[1:]]
        cells = [cell for mean in means for cell in ("", f"{mean:.2f}")]
        rows.append(("geometric mean", f"{temperature:g}", *cells, ""))
    columns = [f"{what}, {mode}" for mode in modes[1:] for what in ("tokens per step", "speed")]
    return Table(
        title="Held-out prompts",
        headings=("", "temperature", *columns, "tokens"),
        rows=tuple(rows),
    )


def _cost(text: str) -> tuple[int, float]:
    size, cost = text.split("=")
    return int(size), float(cost)


def main() -> None:
    """Write answers, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("answers", "score"))
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--out", type=Path, default=Path("answers.jsonl"))
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--verify", type=_cost, nargs="+", default=[(4, 1.5)])
    parser.add_argument("--draft", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=physical_cores())
    arguments = parser.parse_args()
    writer = Writer.opened(arguments.bundle, arguments.threads, arguments.max_tokens)
    if arguments.command == "answers":
        write_answers(writer, arguments.out, arguments.at_once)
    else:
        print_table(score(writer, dict(arguments.verify), arguments.draft))


if __name__ == "__main__":
    main()
