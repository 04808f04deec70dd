"""Measure the speed of drafting tokens by kind of text, in tokens/s.

    python -m benchmarks.drafts.speculation gemma3-270m --rounds 3 --json figures.json

Each answer is generated without drafts, with prompt lookup, and with the drafter too if the bundle
has one, in turn, by the same engine and seed; a different token or log-probability ends the run.
For each way to draft, a table shows how many tokens were drafted per token of an answer, how many
of them were accepted, and tokens per step. The last table has the time of a verification, and of a
draft of one token, over the time of a decode.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import existing_bundle
from benchmarks.report.figures import Figure, figures_table, print_figures
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import TOKENIZER
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafting.drafts import costs_of
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Generation, Request, Token
from hearthd.server.engine.prompt import Prompt
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report.figures import Rounds
    from hearthd.server.engine.drafting.drafts import Costs

_CODE = """def total_price(items, tax):
    result = 0
    for item in items:
        if item.quantity < 1:
            raise ValueError("quantity must be positive")
        result = result + item.price * item.quantity
    return result * (1 + tax)
"""
_TEXT = (
    "The lighthouse on the northern cape was built in 1871, after three ships had been lost in one "
    "winter. Its keeper, Anna Lindqvist, tended the lamp for forty-one years and wrote down the "
    "weather every evening. Her notebooks are kept in the harbour museum, where visitors may read "
    "them on the first Sunday of each month."
)
PROMPTS = {
    "code editing": f"The function:\n\n{_CODE}\nThe same function with the parameter items renamed "
    "to products:\n\ndef total_price(products, tax):\n",
    "quoting": f"{_TEXT}\n\nThe same text again, word for word:\n\nThe lighthouse",
    "summarizing": f"{_TEXT}\n\nA summary of the text about the lighthouse, its keeper Anna "
    "Lindqvist and her notebooks:\n\n",
    "prose": "Once upon a time, in a small village by the sea, there lived",
    "questions": "Question: Why is the sky blue?\nAnswer:",
}
PROMPTS["JSON"] = '{"orders": [{"id": 1, "item": "mug", "color": "red", "count": 2}, {"id": 2, '
MODES = ("off", "lookup", "auto")  # as --speculation
TEMPERATURES = (0.0, 0.8)
SEED = 7


@dataclass(frozen=True, kw_only=True)
class TimedAnswers:
    """Answers to requests that run together.

    tokens    ids with log-probabilities, answer after answer
    rate      tokens/s of all answers
    drafted   drafted tokens that were verified
    accepted  drafted tokens that became part of the answers
    """

    tokens: tuple[object, ...]
    rate: float
    drafted: int
    accepted: int


class Bench:
    """A bundle and an engine on it for each answer."""

    def __init__(self, bundle: Path, threads: int, max_tokens: int, at_once: int) -> None:
        manifest, self._runtime = open_bundle(bundle, threads=threads)
        if not self._runtime.verify_tokens:
            raise SystemExit(f"{bundle} has no verify entry point; bake it again")
        if at_once > self._runtime.slots:
            raise SystemExit(f"--at-once: expected at most the {self._runtime.slots} slots")
        self._tokenizer = Tokenizer.from_file(bundle / TOKENIZER, bos=manifest.special_tokens.bos)
        self._eos = manifest.special_tokens.eos
        self._max_tokens, self._at_once = max_tokens, at_once
        self.costs = costs_of(self._runtime)
        self.modes = MODES if self._runtime.has_drafter else MODES[:2]

    def answers(self, prompt: str, temperature: float, mode: str) -> TimedAnswers:
        """Generate answers at once, each with its seed, with the drafts of a mode."""
        engine = Engine(
            self._runtime,
            eos=self._eos,
            queue_limit=self._at_once,
            costs=None if mode == "off" else self.costs,
            uses_drafter=mode == "auto",
        )
        try:
            answers = asyncio.run(self._tokens(engine, prompt, temperature))
        finally:
            engine.close()
        seconds = max(each[-1].at for each in answers) - min(each[0].at for each in answers)
        count = sum(len(each) - 1 for each in answers)
        return TimedAnswers(
            tokens=tuple((token.id, token.logprobs) for each in answers for token in each),
            rate=count / seconds if seconds else 0.0,
            drafted=sum(each[-1].drafted for each in answers),
            accepted=sum(each[-1].accepted for each in answers),
        )

    async def _tokens(self, engine: Engine, prompt: str, temperature: float) -> list[list[Token]]:
        request = Request(
            prompt=Prompt(self._tokenizer.encode(prompt)),
            max_tokens=self._max_tokens,
            sampling=SamplingOptions(temperature=temperature, min_tokens=2),
            seed=SEED,
        )

        async def answer(generation: Generation) -> list[Token]:
            with generation:
                return [event async for event in generation.events() if isinstance(event, Token)]

        seeds = range(SEED, SEED + self._at_once)
        generations = [engine.submit(replace(request, seed=seed)) for seed in seeds]
        engine.start()  # after all requests have come
        return await asyncio.gather(*map(answer, generations))


def measure(bench: Bench, rounds: int) -> Iterator[tuple[str, dict[str, TimedAnswers]]]:
    """Yield the name of a text and its answers by mode, by round."""
    for number in range(rounds):
        for name, prompt in PROMPTS.items():
            for temperature in TEMPERATURES:
                order = bench.modes[::-1] if number % 2 else bench.modes
                answers = {mode: bench.answers(prompt, temperature, mode) for mode in order}
                if any(answer.tokens != answers["off"].tokens for answer in answers.values()):
                    raise SystemExit(f"{name} at temperature {temperature}: the answers differ")
                yield f"{name}, temperature {temperature:g}", answers


def main() -> None:
    """Measure, print the tables and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--at-once", type=int, default=1, help="requests that run together")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe_machine(arguments.threads)
    bench = Bench(arguments.bundle, arguments.threads, arguments.max_tokens, arguments.at_once)
    bench.answers(PROMPTS["quoting"], 0.0, bench.modes[-1])  # warm up
    by_name: dict[str, list[dict[str, TimedAnswers]]] = {}
    for name, answers in measure(bench, arguments.rounds):
        by_name.setdefault(name, []).append(answers)
    measured: dict[str, Rounds] = {
        mode: [
            {name: rounds[number][mode].rate for name, rounds in by_name.items()}
            for number in range(arguments.rounds)
        ]
        for mode in reversed(bench.modes)
    }
    figures = [Figure(name, f"{name}, tokens/s", higher_is_better=True) for name in by_name]
    table = figures_table(f"{arguments.bundle} on {machine}", figures, measured)
    print_figures(table)
    tables = [_drafts_table(by_name, mode) for mode in bench.modes[1:]]
    tables += map(verify_table, bench.costs.values())
    for other in tables:
        print_table(other)
    if arguments.json:
        write_json(arguments.json, machine, versions(), [table, *tables], rounds=measured)


def _drafts_table(by_name: dict[str, list[dict[str, TimedAnswers]]], mode: str) -> Table:
    """Drafted tokens per token, the fraction accepted and tokens per step, by text: medians."""
    rows = []
    for name, rounds in by_name.items():
        answers = [answers[mode] for answers in rounds]
        tokens = len(answers[0].tokens)
        drafted = statistics.median(answer.drafted for answer in answers)
        accepted = statistics.median(answer.accepted for answer in answers)
        fraction = f"{accepted / drafted:.0%}" if drafted else "-"
        per_step = f"{tokens / (tokens - accepted):.2f}"
        rows.append((name, f"{tokens}", f"{drafted / tokens:.2f}", fraction, per_step))
    headings = ("", "tokens", "drafted per token", "accepted", "tokens per step")
    return Table(title=f"Drafted tokens, {mode}", headings=headings, rows=tuple(rows))


def verify_table(costs: Costs) -> Table:
    """The median time of the latest calls, in decodes."""
    rows = [(f"verify {size} tokens", f"{costs.of(size):.2f}") for size in costs.sizes]
    rows.append(("draft a token", f"{costs.of_draft:.2f}"))
    title = f"Time in decodes of {costs.sequences}"
    return Table(title=title, headings=("", "decodes"), rows=tuple(rows))


if __name__ == "__main__":
    main()
