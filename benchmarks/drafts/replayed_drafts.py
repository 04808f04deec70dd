"""Measure how much faster drafts make a model whose weights are random, in tokens/s.

    python -m benchmarks.synthetic_weights gemma-3-270m-q4_k_m.gguf qwen3.5-4b-mtp 4b.gguf
    hearth bake 4b.gguf --precision native --slots 8 --context 1024 --out 4b
    python -m benchmarks.drafts.replayed_drafts 4b --json figures.json

What random weights answer and draft is noise, but they take the time of a trained model of this
shape. So the answers are texts, pages of the documentation, and the drafter, which computes each
draft, drafts the next tokens of the text or wrong ones, as often as a published trace says: see
`acceptance_trace`. Everything else is the engine's: lookup in the prompt, the choice of the depth
by measured times, verification and rollback. The drafter states the mean of the trace as the
probability of each token. A trained drafter knows more: `confidence.py` measures how much, and
--resolution spreads the probabilities, and what is accepted, as much around the same mean. The
logit of the text's next token is raised above the others, with and without drafts.

Prompts take turns with the kinds of text of the trace. Each prompt is answered with and without
drafts, in turn; at a batch size of N, by N requests at once. A figure is the best of its rounds.

The memory of a virtual machine can be twice as fast in one answer as in the next. So the ratios are
also computed from the calls of the model in the answers of the latest round, as if each call took
the median time of all calls of its kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.drafts.acceptance_trace import ACCEPTED, Trace
from benchmarks.drafts.speculation import verify_table
from benchmarks.inputs import existing_bundle
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import TOKENIZER
from hearthd.runtime.interface import LOGIT_MARGIN
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafting.drafts import costs_of
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prompt import Prompt
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.drafting.drafts import Costs

_PAGES = Path(__file__).parents[2] / "docs"
_PROMPT_TOKENS = 64
BATCHES = (1, 2, 3, 4, 8)
TEMPERATURES = (0.0, 1.0)
KINDS = tuple(ACCEPTED)
# How much more likely the text's next token is than the others, in nats.
_MARGIN = 16.0


@dataclass(frozen=True)
class Call:
    """A kind of call: its name, its number of sequences, and the tokens that each of them has.

    For a draft, `tokens` is the number of the drafted token. The temperature counts because more
    logits are exact at a higher one.
    """

    name: str
    sequences: int
    tokens: int
    temperature: float


class ReplayedRuntime:
    """A runtime that answers with a given text, and drafts it as well as a trace says.

    Every other call is the runtime's. All requests have the same prompt and the same answer.
    """

    def __init__(self, runtime: Runtime, **draws: float) -> None:
        """`draws` are keywords of Trace.draws."""
        self._runtime, self._draws = runtime, draws
        self.text: tuple[int, ...] = ()  # the prompt and the answer
        self.temperature = 0.0
        self.trace = Trace(0.0, 0.0)
        self.seconds: dict[Call, list[float]] = defaultdict(list)
        self.calls: Counter[Call] = Counter()  # since it was last cleared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    @contextlib.contextmanager
    def _timed(self, name: str, sequences: int, tokens: int) -> Iterator[None]:
        call, began = Call(name, sequences, tokens, self.temperature), time.perf_counter()
        yield
        self.seconds[call].append(time.perf_counter() - began)
        self.calls[call] += 1

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),
    ) -> NDArray[Any]:
        """See Reader."""
        with self._timed("decode", len(slots), 1):
            rows = self._runtime.decode(slots, tokens, positions, margins)
        for row, position in zip(rows, positions, strict=True):
            self._raise(row, position)
        return rows

    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterator[NDArray[Any]]:
        """See Runtime: the call returns when the tokens are read."""
        with self._timed("verify", 1, len(tokens)):
            rows = self._runtime.verify(slot, tokens, start, margin=margin)
        return self._raised(rows, start)

    def verify_pair(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int] = (),
    ) -> list[Iterator[NDArray[Any]]]:
        """As in Runtime."""
        with self._timed("verify", len(slots), len(tokens[0])):
            each = self._runtime.verify_pair(slots, tokens, starts, margins)
        return [self._raised(rows, start) for rows, start in zip(each, starts, strict=True)]

    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        """See DraftingReader."""
        drafted = self._runtime.draft(slot, token, position)
        draws = self.trace.draws(f"{self.text} {position}", **self._draws)
        for at, (is_right, probability) in zip(count(position + 1), draws):
            with self._timed("draft", 1, at - position):
                if next(drafted, None) is None:
                    return
            true = self.text[at]
            yield true if is_right else (true + 1) % self._runtime.vocab_size, probability

    def _raised(self, rows: Iterable[NDArray[Any]], start: int) -> Iterator[NDArray[Any]]:
        for position, row in enumerate(rows, start):
            self._raise(row, position)
            yield row

    def _raise(self, row: NDArray[Any], position: int) -> None:
        """Make the text's token after this position the most likely one."""
        row[self.text[position + 1]] = row.max() + _MARGIN


@dataclass
class Speeds:
    """How fast one prompt is answered at one batch size: the best rate of its rounds, in tokens/s.

    `rates` and `calls` are by whether tokens were drafted; the counts and the calls are of the
    latest answers.
    """

    rates: dict[bool, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[bool, Counter[Call]] = field(default_factory=dict)
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0

    @property
    def ratio(self) -> float:
        """The rate with drafts over that without."""
        return self.rates[True] / self.rates[False]

    def ratio_of_calls(self, medians: Mapping[Call, float]) -> float:
        """The ratio if each call took the median time of its kind, in seconds."""
        drafted, plain = (
            sum(number * medians[call] for call, number in self.calls[on].items())
            for on in (True, False)
        )
        return plain / drafted


class Bench:
    """Answers prompts with a runtime; each answer has an engine of its own."""

    def __init__(self, runtime: Runtime, **draws: float) -> None:
        """See ReplayedRuntime."""
        self._replayed = ReplayedRuntime(runtime, **draws)
        self.costs = costs_of(runtime)

    @property
    def medians(self) -> dict[Call, float]:
        """The median seconds of the calls so far."""
        return {call: statistics.median(all_) for call, all_ in self._replayed.seconds.items()}

    def add(
        self, speeds: Speeds, text: tuple[int, ...], temperature: float, batch: int, trace: Trace,
        *, drafts: bool,
    ) -> None:  # fmt: skip
        """Answer a prompt `batch` times at once."""
        self._replayed.text, self._replayed.trace = text, trace
        self._replayed.temperature, self._replayed.calls = temperature, Counter()
        engine = Engine(
            cast("Runtime", self._replayed),
            eos=(),
            queue_limit=batch,
            costs=self.costs if drafts else None,
        )
        engine.start()
        try:
            answers = asyncio.run(self._answers(engine, text, temperature, batch))
        finally:
            engine.close()
        if any([token.id for token in answer] != [*text[_PROMPT_TOKENS:]] for answer in answers):
            raise SystemExit("an answer is not the text")
        seconds = max(tokens[-1].at for tokens in answers) - min(tokens[0].at for tokens in answers)
        rate = sum(len(tokens) - 1 for tokens in answers) / seconds
        speeds.rates[drafts] = max(speeds.rates[drafts], rate)
        speeds.calls[drafts] = self._replayed.calls
        if drafts:
            speeds.drafted = sum(tokens[-1].drafted for tokens in answers)
            speeds.accepted = sum(tokens[-1].accepted for tokens in answers)
            speeds.tokens = sum(len(tokens) for tokens in answers)

    async def _answers(
        self, engine: Engine, text: tuple[int, ...], temperature: float, batch: int
    ) -> list[list[Token]]:
        request = Request(
            prompt=Prompt(text[:_PROMPT_TOKENS]),
            max_tokens=len(text) - _PROMPT_TOKENS,
            sampling=SamplingOptions(temperature=temperature),
            seed=0,
        )

        async def answer() -> list[Token]:
            with engine.submit(request) as generation:
                return [event async for event in generation.events() if isinstance(event, Token)]

        return await asyncio.gather(*(answer() for _ in range(batch)))


def usual_coverage(drafted: int, vocab_size: int) -> float:
    """The share of the right tokens that a drafter with these rows of the head can draft.

    The rows of an MTP layer are the first 65,536 of Qwen's vocabulary, 98 % of the tokens of
    English and of code (docs/drafts.md). Synthetic weights have another vocabulary.
    """
    return 1.0 if drafted == vocab_size else 0.98


def page_texts(tokenizer: Tokenizer, number: int, length: int) -> list[tuple[int, ...]]:
    """The first tokens of pages of the documentation."""
    # A token has 16 characters at most on average, and a long page takes time.
    pages = (path.read_text()[: 16 * length] for path in sorted(_PAGES.glob("*.md")))
    texts = [text[:length] for page in pages if len(text := tokenizer.encode(page)) >= length]
    if len(texts) < number:
        raise SystemExit(f"{number} prompts: only {len(texts)} pages have {length} tokens")
    return texts[:number]


Measured = dict[tuple[float, int, int], Speeds]  # by temperature, batch size and prompt


def measure(
    bench: Bench, texts: list[tuple[int, ...]], batches: Iterable[int], rounds: int
) -> Measured:
    """Answer each prompt with and without drafts."""
    measured: Measured = defaultdict(Speeds)
    for number in range(rounds):
        for temperature in TEMPERATURES:
            for batch in batches:
                for prompt, text in enumerate(texts):
                    trace = Trace.of(KINDS[prompt % len(KINDS)], temperature)
                    speeds = measured[temperature, batch, prompt]
                    for drafts in (False, True) if number % 2 else (True, False):
                        bench.add(speeds, text, temperature, batch, trace, drafts=drafts)
    return measured


def tables(
    measured: Measured, costs: Mapping[int, Costs], medians: Mapping[Call, float]
) -> list[Table]:
    """Speeds by kind of text, ratios by batch size, and the time of calls."""
    alone: dict[str, list[Speeds]] = defaultdict(list)
    by_batch: dict[str, list[Speeds]] = defaultdict(list)
    for (temperature, batch, prompt), speeds in measured.items():
        if batch == 1:
            alone[f"{KINDS[prompt % len(KINDS)]}, temperature {temperature:g}"].append(speeds)
            alone[f"all, temperature {temperature:g}"].append(speeds)
        by_batch[f"{batch} at once, temperature {temperature:g}"].append(speeds)
    return [
        Table(
            title="Drafts of a trace, one request",
            headings=("", "plain tokens/s", "with drafts", "ratio", "accepted", "tokens per step"),
            rows=tuple((name, *_cells(alone[name])) for name in sorted(alone)),
        ),
        _ratios("Rate with drafts over plain decoding, by prompt", by_batch, lambda s: s.ratio),
        _ratios(
            "The same with the median time of each kind of calls",
            by_batch,
            lambda speeds: speeds.ratio_of_calls(medians),
        ),
        *(verify_table(each) for each in costs.values()),
    ]


def _ratios(
    title: str, by_batch: Mapping[str, list[Speeds]], ratio: Callable[[Speeds], float]
) -> Table:
    return Table(
        title=title,
        headings=("", "worst", "median", "best"),
        rows=tuple(
            (name, *(f"{of(map(ratio, each)):.2f}" for of in (min, statistics.median, max)))
            for name, each in by_batch.items()
        ),
    )


def _cells(speeds: list[Speeds]) -> tuple[str, ...]:
    """The cells of a row for some prompts, whose answers are equally long.

    A rate is the tokens of all answers over the time of all.
    """
    plain, drafted = (
        statistics.harmonic_mean([s.rates[on] for s in speeds]) for on in (False, True)
    )
    total, accepted = sum(s.tokens for s in speeds), sum(s.accepted for s in speeds)
    count_drafted = sum(s.drafted for s in speeds)
    fraction = f"{accepted / count_drafted:.0%}" if count_drafted else "-"
    per_step = f"{total / (total - accepted):.2f}"
    return f"{plain:.2f}", f"{drafted:.2f}", f"{drafted / plain:.2f}", fraction, per_step


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument(
        "--batches",
        type=int,
        nargs="+",
        default=BATCHES,
        help="numbers of requests at once; those above the slots of the bundle are left out",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=physical_cores())
    covered = (
        "share of the text's tokens that can be drafted; docs/drafts.md has shares of sketches"
    )
    parser.add_argument("--covered", type=float, help=covered)
    explained = (
        "share of what is accepted that probabilities explain, by confidence.py (default: 0)"
    )
    parser.add_argument("--resolution", type=float, default=0.0, help=explained)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables and write the file."""
    arguments = _arguments()
    machine = describe_machine(arguments.threads)
    manifest, runtime = open_bundle(arguments.bundle, threads=arguments.threads)
    if not runtime.has_drafter:
        raise SystemExit(
            f"{arguments.bundle} has no drafter; bake weights with an MTP layer, or --drafter"
        )
    path = arguments.bundle / TOKENIZER
    tokenizer = Tokenizer.from_file(path, bos=manifest.special_tokens.bos)
    length = _PROMPT_TOKENS + arguments.max_tokens
    texts = page_texts(tokenizer, arguments.prompts, length)
    batches = [batch for batch in arguments.batches if batch <= runtime.slots]
    covered = arguments.covered or usual_coverage(manifest.draft_tokens, runtime.vocab_size)
    bench = Bench(runtime, covered=covered, resolution=arguments.resolution)
    for drafts in (False, True):  # warm up
        bench.add(Speeds(), texts[0], 0.0, 1, Trace(1.0, 1.0), drafts=drafts)
    measured = measure(bench, texts, batches, arguments.rounds)
    found = tables(measured, bench.costs, bench.medians)
    for table in found:
        print_table(table)
    if arguments.json:
        write_json(arguments.json, machine, versions(), found)


if __name__ == "__main__":
    main()
