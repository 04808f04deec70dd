"""Measure one engine in this process and print the figures as one line of JSON.

Started by compare.py, a fresh process for every measurement, so that load time and memory are
those of this engine alone. Both engines stand behind the Reader protocol and read the same token
ids; nothing is sampled, and each call ends with the logits in an array of ours. Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from baker.ab.llama import FASTEST, LlamaCpp
from server.runtime.base import read_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.runtime.base import Reader

PROMPTS = (128, 512)  # tokens; measured up to the logits after the last
WARM_STEPS = 8  # decode steps before the clock starts
STEPS = 64  # decode steps that are measured
REPETITIONS = 3  # of a prefill, of which the median counts
_SLOT = 0


def open_hearth(bundle: Path, context: int, threads: int) -> Reader:
    """Our engine, with the checks that `serve` makes when it loads; the context is the bundle's."""
    from server.runtime.load import open_bundle

    manifest, runtime = open_bundle(bundle, threads=threads)
    assert manifest.context == context, f"context {manifest.context}, not {context}"
    return runtime


def open_llama(model: Path, context: int, threads: int) -> Reader:
    """llama.cpp as it sets itself up, weights repacked for the CPU's best kernels."""
    return LlamaCpp(model, context=context, threads=threads, profile=FASTEST)


ENGINES: dict[str, Callable[[Path, int, int], Reader]] = {
    "hearth": open_hearth,
    "llama.cpp": open_llama,
}


def measure(runtime: Reader, tokens: Sequence[int], begun: float) -> dict[str, float]:
    """Prefill and decode; rates in tokens a second, times in seconds since `begun`."""
    loaded = time.monotonic() - begun
    read_prompt(runtime, tokens[: PROMPTS[0]])
    figures = {"load_s": loaded, "first_token_s": time.monotonic() - begun}
    for size in PROMPTS:
        seconds = statistics.median(
            _seconds(lambda size=size: read_prompt(runtime, tokens[:size]))  # type: ignore[misc]
            for _ in range(REPETITIONS)
        )
        figures[f"prefill_{size}"] = size / seconds
    read_prompt(runtime, tokens[: PROMPTS[0]])
    _decode(runtime, tokens, PROMPTS[0], WARM_STEPS)
    start = PROMPTS[0] + WARM_STEPS
    figures["decode"] = STEPS / _seconds(lambda: _decode(runtime, tokens, start, STEPS))
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    )
    figures["resident_mb"] = int(status["VmRSS"].split()[0]) * 1024 / 1e6
    figures["peak_mb"] = int(status["VmHWM"].split()[0]) * 1024 / 1e6
    return figures


def _decode(runtime: Reader, tokens: Sequence[int], start: int, steps: int) -> None:
    for position in range(start, start + steps):
        runtime.decode([_SLOT], [tokens[position]], [position])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure the engine that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model", type=Path, help="a bundle, or a GGUF file for llama.cpp")
    parser.add_argument("--context", type=int, required=True, help="positions of the slot")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--begun", type=float, required=True, help="time.monotonic() at the start")
    arguments = parser.parse_args()
    runtime = ENGINES[arguments.engine](arguments.model, arguments.context, arguments.threads)
    numbers = random.Random(0)
    tokens = [numbers.randrange(1000, runtime.vocab_size) for _ in range(max(PROMPTS))]
    figures = measure(runtime, tokens, arguments.begun)
    print(json.dumps(figures))  # noqa: T201


if __name__ == "__main__":
    main()
