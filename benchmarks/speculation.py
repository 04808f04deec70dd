"""Measure the speed of prompt lookup by kind of text, in tokens/s.

    python -m benchmarks.speculation gemma3-270m --rounds 3 --json figures.json

Each answer is generated with and without prompt lookup, in turn, by the same engine and seed; a
different token or log-probability ends the run. A second table shows how many tokens were drafted
per token of an answer, and how many of them were accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report.figures import Figure, figures_table, print_figures
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import TOKENIZER
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafts import Costs
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prompt import Prompt
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report.figures import Rounds

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
TEMPERATURES = (0.0, 0.8)
SEED = 7


@dataclass(frozen=True, kw_only=True)
class TimedAnswer:
    """Token ids with log-probabilities, tokens/s, and counts of drafted and accepted tokens."""

    tokens: tuple[object, ...]
    rate: float
    drafted: int
    accepted: int


class Bench:
    """A bundle and two engines on it, which run one at a time."""

    def __init__(self, bundle: Path, threads: int, max_tokens: int) -> None:
        manifest, self._runtime = open_bundle(bundle, threads=threads)
        if not self._runtime.verify_tokens:
            raise SystemExit(f"{bundle} has no verify entry point; bake it again")
        self._tokenizer = Tokenizer.from_file(bundle / TOKENIZER, bos=manifest.special_tokens.bos)
        self._eos = manifest.special_tokens.eos
        self._max_tokens = max_tokens
        self._costs = Costs(self._runtime.verify_tokens)

    def answer(self, prompt: str, temperature: float, *, lookup: bool) -> TimedAnswer:
        """Generate an answer, with or without prompt lookup."""
        engine = Engine(
            self._runtime, eos=self._eos, queue_limit=1, costs=self._costs if lookup else None
        )
        engine.start()
        try:
            tokens = asyncio.run(self._tokens(engine, prompt, temperature))
        finally:
            engine.close()
        seconds = tokens[-1].at - tokens[0].at
        return TimedAnswer(
            tokens=tuple((token.id, token.logprobs) for token in tokens),
            rate=(len(tokens) - 1) / seconds if seconds else 0.0,
            drafted=tokens[-1].drafted,
            accepted=tokens[-1].accepted,
        )

    async def _tokens(self, engine: Engine, prompt: str, temperature: float) -> list[Token]:
        request = Request(
            prompt=Prompt(self._tokenizer.encode(prompt)),
            max_tokens=self._max_tokens,
            sampling=SamplingOptions(temperature=temperature, min_tokens=2),
            seed=SEED,
        )
        with engine.submit(request) as generation:
            return [event async for event in generation.events() if isinstance(event, Token)]


def measure(bench: Bench, rounds: int) -> Iterator[tuple[str, TimedAnswer, TimedAnswer]]:
    """Yield the name of a text and its answers with and without prompt lookup, by round."""
    for number in range(rounds):
        for name, prompt in PROMPTS.items():
            for temperature in TEMPERATURES:
                order = (True, False) if number % 2 else (False, True)
                answers = {on: bench.answer(prompt, temperature, lookup=on) for on in order}
                if answers[True].tokens != answers[False].tokens:
                    raise SystemExit(f"{name} at temperature {temperature}: the answers differ")
                yield f"{name}, temperature {temperature:g}", answers[True], answers[False]


def main() -> None:
    """Measure, print the tables and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe_machine(arguments.threads)
    bench = Bench(arguments.bundle, arguments.threads, arguments.max_tokens)
    bench.answer(PROMPTS["quoting"], 0.0, lookup=True)  # warm up
    pairs_by_name: dict[str, list[tuple[TimedAnswer, TimedAnswer]]] = {}
    for name, looked_up, plain in measure(bench, arguments.rounds):
        pairs_by_name.setdefault(name, []).append((looked_up, plain))
    measured: dict[str, Rounds] = {
        side: [
            {name: pairs[number][index].rate for name, pairs in pairs_by_name.items()}
            for number in range(arguments.rounds)
        ]
        for index, side in enumerate(("lookup", "off"))
    }
    figures = [Figure(name, f"{name}, tokens/s", higher_is_better=True) for name in pairs_by_name]
    table = figures_table(f"{arguments.bundle} on {machine}", figures, measured)
    print_figures(table)
    drafts = _drafts_table(pairs_by_name)
    print_table(drafts)
    if arguments.json:
        write_json(arguments.json, machine, versions(), [table, drafts], rounds=measured)


def _drafts_table(pairs_by_name: dict[str, list[tuple[TimedAnswer, TimedAnswer]]]) -> Table:
    """Drafted tokens per token and the fraction accepted, by text: medians."""
    rows = []
    for name, pairs in pairs_by_name.items():
        answers = [looked_up for looked_up, _ in pairs]
        tokens = len(answers[0].tokens)
        drafted = statistics.median(answer.drafted for answer in answers)
        accepted = statistics.median(answer.accepted for answer in answers)
        fraction = f"{accepted / drafted:.0%}" if drafted else "-"
        rows.append((name, f"{tokens}", f"{drafted / tokens:.2f}", fraction))
    headings = ("", "tokens", "drafted per token", "accepted")
    return Table(title="Drafted tokens", headings=headings, rows=tuple(rows))


if __name__ == "__main__":
    main()
