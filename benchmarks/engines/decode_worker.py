"""Measure one engine in this process and print what was found as one line of JSON.

Started by decode.py, a fresh process for every measurement, so that load time and memory are those
of this engine alone. Both engines stand behind the Reader protocol and read the same text, whose
token ids come as JSON from the standard input; nothing is sampled, and each call ends with the
logits in an array of ours. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from baker.compare.sides.llama_cpp import FASTEST, LlamaCpp
from runtime.interface import read_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime.interface import Reader

PROMPTS = (128, 512)  # tokens; measured up to the logits after the last
DEPTHS = (128, 1024, 1900)  # tokens that have been read when decode is measured
TOGETHER = 8  # sequences that are decoded together, at the first depth
WARM_STEPS = 8  # decode steps before the clock starts
STEPS = 48  # decode steps that are measured
REPETITIONS = 3  # of a prefill, of which the median counts
_SLOT = 0


@dataclass(frozen=True, kw_only=True)
class About:
    """What was measured.

    quantisation   the bundle's precision, or what llama.cpp calls the file's
    weights_bytes  of the weights that are read for a token whatever it is: a model with tied
                   embeddings reads the whole table as its output head
    versions       of the engine
    """

    quantisation: str
    weights_bytes: int
    versions: dict[str, str]


def open_hearth(bundle: Path, context: int, threads: int, exact: bool) -> tuple[Reader, About]:
    """Our engine, with the checks that `serve` makes when it loads; the context is the bundle's."""
    from runtime.open_bundle import open_bundle
    from server.version import version

    manifest, runtime = open_bundle(bundle, threads=threads)
    assert manifest.context == context, f"context {manifest.context}, not {context}"
    weights = manifest.statistics["weights_bytes"]
    if not exact:
        weights -= manifest.statistics["refining_bytes"]
    about = About(
        quantisation=manifest.precision, weights_bytes=weights, versions={"hearth": version()}
    )
    return runtime, about


def open_llama(model: Path, context: int, threads: int, _exact: bool) -> tuple[Reader, About]:
    """llama.cpp as it sets itself up, weights repacked for the CPU's best kernels."""
    runtime = LlamaCpp(model, context=context, threads=threads, profile=FASTEST)
    about = About(
        quantisation=runtime.quantisation,
        weights_bytes=runtime.weights_bytes,
        versions={"llama-cpp-python": runtime.version},
    )
    return runtime, about


ENGINES: dict[str, Callable[[Path, int, int, bool], tuple[Reader, About]]] = {
    "hearth": open_hearth,
    "llama.cpp": open_llama,
}


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a reader reads; if `exact`, every logit is to be exact."""

    tokens: Sequence[int]
    exact: bool


def measure(runtime: Reader, text: Text, begun: float) -> dict[str, float]:
    """Prefill and decode; rates in tokens a second, times in seconds since `begun`.

    What the context is too short for is left out, and so is decoding together where a reader has
    not the sequences for it.
    """
    loaded = time.monotonic() - begun
    read_prompt(runtime, text.tokens[: PROMPTS[0]], exact=text.exact)
    figures = {"load_s": loaded, "first_token_s": time.monotonic() - begun}
    for size in PROMPTS:
        if size <= runtime.context:
            figures[f"prefill_{size}"] = size / _prefill_seconds(runtime, text.tokens[:size])
    for depth in DEPTHS:
        if depth + STEPS <= runtime.context:
            figures[f"decode_{depth}"] = _decode_rate(runtime, text, depth, 1)
    figures |= _memory()  # with one slot in use
    if min(runtime.slots, runtime.batch) >= TOGETHER:
        figures["decode_together"] = _decode_rate(runtime, text, DEPTHS[0], TOGETHER)
    return figures


def _prefill_seconds(runtime: Reader, prompt: Sequence[int]) -> float:
    seconds = (_seconds(lambda: read_prompt(runtime, prompt)) for _ in range(REPETITIONS))
    return statistics.median(seconds)


def _decode_rate(runtime: Reader, text: Text, depth: int, sequences: int) -> float:
    """Tokens a second of so many sequences together, from `depth` on."""
    slots = range(_SLOT, _SLOT + sequences)
    exact = [text.exact] * sequences

    def decode(positions: range) -> None:
        for at in positions:
            runtime.decode(slots, [text.tokens[at]] * sequences, [at] * sequences, exact)

    for slot in slots:
        read_prompt(runtime, text.tokens[: depth - WARM_STEPS], slot=slot)
    decode(range(depth - WARM_STEPS, depth))
    return sequences * STEPS / _seconds(lambda: decode(range(depth, depth + STEPS)))


def _memory() -> dict[str, float]:
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    )
    sizes = {"resident_mb": "VmRSS", "peak_mb": "VmHWM"}
    return {name: int(status[key].split()[0]) * 1024 / 1e6 for name, key in sizes.items()}


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
    parser.add_argument("--exact", action="store_true", help="every logit is to be exact")
    arguments = parser.parse_args()
    text = Text(tokens=json.load(sys.stdin), exact=arguments.exact)
    runtime, about = ENGINES[arguments.engine](
        arguments.model, arguments.context, arguments.threads, arguments.exact
    )
    figures = measure(runtime, text, arguments.begun)
    print(json.dumps({"about": asdict(about), "figures": figures}))  # noqa: T201


if __name__ == "__main__":
    main()
