"""Measure the speed of a trained drafter on held-out prompts, next to lookup and plain decoding.

    python -m benchmarks.drafts.drafter_speed drafting --rounds 3

The prompts are the held-out ones of `drafter_texts.py`. Each is answered in turns as a
server does with `--speculation off`, `lookup` and `auto`. The run ends with an error if an answer
has other tokens than without drafts. A speed counts the tokens after the first one of each answer;
the ratios compare it with the speed of `off`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.drafts.drafter_texts import MODES, TEMPERATURES, Writer, prompts
from benchmarks.inputs import existing_bundle
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.server.engine.drafting.drafts import costs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, float, str]  # kind of prompts, temperature and mode


@dataclass
class Written:
    """Tokens after the first one of each answer, and their time."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def measure(writer: Writer, rounds: int) -> dict[Key, Written]:
    """Answer all held-out prompts; raises SystemExit if a token differs."""
    modes = MODES if writer.runtime.has_drafter else MODES[:2]
    costs = {mode: costs_of(writer.runtime) for mode in modes[1:]}
    written = defaultdict[Key, Written](Written)
    texts = prompts(held_out=True, asked=writer.template is not None)
    for _, temperature, (kind, text) in itertools.product(range(rounds), TEMPERATURES, texts):
        plain: tuple[int, ...] | None = None
        for mode in modes:
            (answer,) = writer.answers(
                [(text, temperature)],
                runtime=writer.runtime,
                costs=costs.get(mode),
                uses_drafter=mode == "auto",
            )
            plain = plain or answer.ids
            if answer.ids != plain:
                raise SystemExit(f"{text!r} at temperature {temperature}: the answers differ")
            so_far = written[kind, temperature, mode]
            so_far.tokens += len(answer.ids) - 1
            so_far.seconds += answer.seconds
    return dict(written)


def table_of(written: Mapping[Key, Written]) -> Table:
    """Tokens per second of each kind, and the geometric mean of the ratios to plain decoding."""
    modes = list(dict.fromkeys(mode for *_, mode in written))
    kinds = list(dict.fromkeys(kind for kind, *_ in written))
    rows = []
    for temperature in TEMPERATURES:
        ratios = defaultdict[str, list[float]](list)
        for kind in kinds:
            rates = [written[kind, temperature, mode].rate for mode in modes]
            row = [kind, f"{temperature:g}", f"{rates[0]:.1f}"]
            for mode, rate in zip(modes[1:], rates[1:], strict=True):
                ratios[mode].append(rate / rates[0])
                row.append(f"{rate:.1f} (x {rate / rates[0]:.2f})")
            rows.append(tuple(row))
        means = (f"x {statistics.geometric_mean(ratios[mode]):.2f}" for mode in modes[1:])
        rows.append(("geometric mean", f"{temperature:g}", "", *means))
    return Table(
        title="Held-out prompts, tokens/s",
        headings=("", "temperature", *modes),
        rows=tuple(rows),
    )


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (default: 96)")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path, help="file to write")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.threads)
    writer = Writer.opened(arguments.bundle, arguments.threads, arguments.max_tokens)
    table = table_of(measure(writer, arguments.rounds))
    print_table(table)
    if arguments.json:
        write_json(arguments.json, machine, versions(), [table])


if __name__ == "__main__":
    main()
