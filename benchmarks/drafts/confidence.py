"""Measure how well a drafter knows which of its tokens are accepted.

    hearth bake model.gguf --drafter drafter --out drafting
    python -m benchmarks.drafts.confidence drafting

Every step of the answers to the held-out prompts of `drafter_texts.py` drafts. The *resolution* is
the share of the variance of what is accepted that the drafter's probabilities explain: tokens are
put into bins by their probability, and the variance of the bins' fractions is divided by the
variance of what is accepted (Murphy's decomposition of the Brier score, 1973). What chance alone
would add is subtracted. `replayed_drafts.py` takes it as --resolution.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.drafts.drafter_texts import TEMPERATURES, GivenCosts, Writer, prompts
from benchmarks.inputs import existing_bundle
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.runtime.interface import Runtime

_BINS = 20


@dataclass(frozen=True)
class Drafted:
    """A drafted token whose predecessors were accepted."""

    probability: float
    is_accepted: bool


class RecordingRuntime:
    """A runtime that keeps its drafts; other calls are the runtime's."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.drafts: list[tuple[int, list[tuple[int, float]]]] = []  # by the first position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        """See DraftingReader."""
        drafted: list[tuple[int, float]] = []
        self.drafts.append((position + 1, drafted))
        for each in self._runtime.draft(slot, token, position):
            drafted.append(each)
            yield each

    def compared(self, tokens: Sequence[int]) -> Iterator[Drafted]:
        """The drafts, compared with the tokens of the prompt and the answer."""
        for start, drafted in self.drafts:
            for (token, probability), true in zip(drafted, tokens[start:], strict=False):
                yield Drafted(probability, token == true)
                if token != true:
                    break


def resolution(drafted: Sequence[Drafted]) -> float:
    """The share of the variance of what is accepted that the probabilities explain."""
    bins = defaultdict[int, list[bool]](list)
    for each in drafted:
        bins[min(int(each.probability * _BINS), _BINS - 1)].append(each.is_accepted)
    mean = sum(each.is_accepted for each in drafted) / len(drafted)
    variance = mean * (1 - mean)
    explained = sum(len(each) * (sum(each) / len(each) - mean) ** 2 for each in bins.values())
    by_chance = len(bins) * variance
    return (explained - by_chance) / (len(drafted) * variance)


def measure(writer: Writer) -> dict[tuple[str, float], list[Drafted]]:
    """What was drafted in the answers to the held-out prompts, by kind and temperature."""
    costs = GivenCosts(dict.fromkeys(writer.runtime.verify_tokens, 1.0), 0.0)
    found = defaultdict[tuple[str, float], list[Drafted]](list)
    for temperature in TEMPERATURES:
        for kind, text in prompts(held_out=True, asked=writer.template is not None):
            runtime = RecordingRuntime(writer.runtime)
            (answer,) = writer.answers(
                [(text, temperature)],
                runtime=cast("Runtime", runtime),
                costs={1: costs},
                uses_drafter=True,
            )
            found[kind, temperature] += runtime.compared([*writer.ids(text), *answer.ids])
    return dict(found)


def table_of(found: dict[tuple[str, float], list[Drafted]]) -> Table:
    """The acceptance and the resolution of each kind, and of all."""
    rows = list(found.items())
    for temperature in TEMPERATURES:
        some = (drafted for (_, at), drafted in found.items() if at == temperature)
        rows.append((("all", temperature), [*itertools.chain.from_iterable(some)]))
    return Table(
        title="Drafted tokens",
        headings=("", "temperature", "tokens", "accepted", "resolution"),
        rows=tuple(
            (
                kind,
                f"{temperature:g}",
                f"{len(drafted)}",
                f"{sum(each.is_accepted for each in drafted) / len(drafted):.3f}",
                f"{resolution(drafted):.2f}",
            )
            for (kind, temperature), drafted in rows
        ),
    )


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (default: 96)")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path, help="file to write")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.threads)
    writer = Writer.opened(arguments.bundle, arguments.threads, arguments.max_tokens)
    if not writer.runtime.has_drafter:
        raise SystemExit(f"{arguments.bundle} has no drafter; bake with --drafter")
    table = table_of(measure(writer))
    print_table(table)
    if arguments.json:
        write_json(arguments.json, machine, versions(), [table])


if __name__ == "__main__":
    main()
