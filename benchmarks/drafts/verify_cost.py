"""Measure the time of verifications in decodes.

    python -m benchmarks.drafts.verify_cost gemma3-270m gemma3-1b --json figures.json

Each turn reads the next token of a page of the documentation by a decode, then the same token and
those after it by a verification of each size. A figure is the median of all turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.drafts.replayed_drafts import page_texts
from benchmarks.inputs import existing_bundle
from benchmarks.report.machine import describe_machine, versions, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import TOKENIZER
from hearthd.runtime.interface import ALL_LOGITS
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.runtime.interface import Runtime


def measure(
    runtime: Runtime, text: Sequence[int], start: int, turns: int, margin: int
) -> dict[int, list[float]]:
    """Seconds of a decode (size 1) and of verifications, by size, after `start` tokens.

    `margin` as in Reader.decode.
    """
    for at in range(0, start, runtime.chunk):
        runtime.prefill(0, text[at : min(at + runtime.chunk, start)], at)
    seconds = defaultdict[int, list[float]](list)
    for position in range(start, start + turns):
        for size in (1, *runtime.verify_tokens):
            began = time.perf_counter()
            if size == 1:
                runtime.decode([0], [text[position]], [position], [margin])
            else:
                runtime.verify(0, text[position : position + size], position, margin=margin)
            seconds[size].append(time.perf_counter() - began)
    return seconds


def row_of(name: str, seconds: dict[int, list[float]], sizes: Sequence[int]) -> tuple[str, ...]:
    """The cells of a bundle: the time of a decode in ms, and of verifications in decodes."""
    medians = {size: statistics.median(times) for size, times in seconds.items()}
    ratios = (f"{medians[size] / medians[1]:.2f}" if size in medians else "" for size in sizes)
    return name, f"{medians[1] * 1e3:.1f}", *ratios


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", type=existing_bundle, nargs="+")
    parser.add_argument("--depth", type=int, default=200, help="tokens that the slot has")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument(
        "--temperature", type=float, default=1, help="of requests, at most 1: fewer logits matter"
    )
    parser.add_argument("--no-mmap", action="store_true", help="as in hearth serve")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe_machine(arguments.threads)
    margin = SamplingOptions(temperature=arguments.temperature).logit_margin or ALL_LOGITS
    measured: dict[str, dict[int, list[float]]] = {}
    for bundle in arguments.bundles:
        manifest, runtime = open_bundle(
            bundle, threads=arguments.threads, mapped=not arguments.no_mmap
        )
        tokenizer = Tokenizer.from_file(bundle / TOKENIZER, bos=manifest.special_tokens.bos)
        length = arguments.depth + arguments.turns + max(runtime.verify_tokens)
        (text,) = page_texts(tokenizer, 1, length)
        measure(runtime, text, arguments.depth, 3, margin)  # warm up
        measured[bundle.name] = measure(runtime, text, arguments.depth, arguments.turns, margin)
    sizes = sorted({size for seconds in measured.values() for size in seconds if size > 1})
    table = Table(
        title=f"Time in decodes, after {arguments.depth} tokens, {arguments.threads} threads",
        headings=("", "decode, ms", *(f"verify of {size}" for size in sizes)),
        rows=tuple(row_of(name, seconds, sizes) for name, seconds in measured.items()),
    )
    print_table(table)
    if arguments.json:
        write_json(arguments.json, machine, versions(), [table])


if __name__ == "__main__":
    main()
