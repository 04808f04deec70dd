"""Measure one engine in this process and print the figures as one line of JSON.

decode_rounds.py starts a new process for every measurement, so that load time and memory are those
of one engine. Both engines implement the Reader protocol and read the same token ids, given as JSON
on the standard input. Nothing is sampled; every call returns its logits as an array. Linux only.
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

from hearthd.baker.compare.sides.llama_cpp import FASTEST, LlamaCpp
from hearthd.runtime.interface import ALL_LOGITS, LOGIT_MARGIN, read_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.runtime.interface import Reader

PROMPTS = (128, 512, 4096)  # tokens; measured until the logits after the last one
DEPTHS = (128, 1024, 1900)  # tokens in the context when decoding is measured
TOGETHER = 8  # sequences in a batch, at the first depth
WARM_STEPS = 8  # decode steps before the clock starts
STEPS = 48  # measured decode steps
REPETITIONS = 3  # of a prefill, and of the decode steps; the median counts
LONG_REPETITIONS = 1  # of a prefill of the longest prompt
_SLOT = 0


@dataclass(frozen=True, kw_only=True)
class EngineDescription:
    """The measured engine and its model.

    quantization   the precision of the bundle, or the format of the GGUF file
    weights_bytes  of the weights that a token reads: with tied embeddings, the whole table is read
                   as the output head; of experts, those that it is routed to
    versions       of the engine
    """

    quantization: str
    weights_bytes: int
    versions: dict[str, str]


def open_hearth(
    bundle: Path, context: int, threads: int, exact: bool, mapped: bool
) -> tuple[Reader, EngineDescription]:
    """Hearth, with the checks of `hearth serve`; `context` must equal the bundle's."""
    from hearthd.runtime.open_bundle import open_bundle
    from hearthd.server.version import version

    manifest, runtime = open_bundle(bundle, threads=threads, mapped=mapped)
    assert manifest.context == context, f"context {manifest.context}, expected {context}"
    # Without `exact`, a step reads few blocks of the arrays that refine the head.
    refining = manifest.statistics["refining_bytes"] if exact else 0
    about = EngineDescription(
        quantization=manifest.precision,
        weights_bytes=manifest.statistics["token_bytes"] + refining,
        versions={"hearth": version()},
    )
    return runtime, about


def open_llama(
    model: Path, context: int, threads: int, _exact: bool, _mapped: bool
) -> tuple[Reader, EngineDescription]:
    """llama.cpp with its defaults: weights are repacked for the fastest kernels of the CPU."""
    runtime = LlamaCpp(model, context=context, threads=threads, profile=FASTEST)
    about = EngineDescription(
        quantization=runtime.quantization,
        weights_bytes=runtime.weights_bytes,
        versions={"llama-cpp-python": runtime.version},
    )
    return runtime, about


ENGINES: dict[str, Callable[[Path, int, int, bool, bool], tuple[Reader, EngineDescription]]] = {
    "hearth": open_hearth,
    "llama.cpp": open_llama,
}


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text to read, and the margin of exact logits.

    Decoding is measured in contexts of at most `max_depth` tokens.
    """

    tokens: Sequence[int]
    margin: int = LOGIT_MARGIN
    max_depth: int = DEPTHS[-1]


def prefill_repetitions(size: int) -> int:
    """How often a prompt is read."""
    return LONG_REPETITIONS if size == PROMPTS[-1] else REPETITIONS


def measured_depths(limit: int, max_depth: int) -> list[int]:
    """The depths at which decoding is measured, in a text or a context of `limit` tokens."""
    return [depth for depth in DEPTHS if depth + STEPS <= limit and depth <= max_depth]


def measure(runtime: Reader, text: Text, begun: float) -> dict[str, float]:
    """Measure prefill and decode: rates in tokens/s, times in seconds since `begun`.

    Figures that exceed the context or the text are omitted, as is the batch if the reader has too
    few slots.
    """
    limit = min(runtime.context, len(text.tokens))
    loaded = time.monotonic() - begun
    read_prompt(runtime, text.tokens[: PROMPTS[0]], margin=text.margin)
    figures = {"load_s": loaded, "first_token_s": time.monotonic() - begun}
    for size in PROMPTS:
        if size <= limit:
            figures[f"prefill_{size}"] = size / _prefill_seconds(runtime, text.tokens[:size])
    for depth in measured_depths(limit, text.max_depth):
        figures[f"decode_{depth}"] = _decode_rate(runtime, text, depth, 1)
    figures |= _memory()  # with one slot in use
    if min(runtime.slots, runtime.batch) >= TOGETHER:
        figures["decode_together"] = _decode_rate(runtime, text, DEPTHS[0], TOGETHER)
    return figures


def _prefill_seconds(runtime: Reader, prompt: Sequence[int]) -> float:
    return _median_seconds(lambda: read_prompt(runtime, prompt), prefill_repetitions(len(prompt)))


def _decode_rate(runtime: Reader, text: Text, depth: int, sequences: int) -> float:
    """Tokens/s of decoding `sequences` in a batch, from `depth` tokens on.

    Each begins at another place of the text: equal tokens would be routed to equal experts.
    """
    slots = range(_SLOT, _SLOT + sequences)
    margins = [text.margin] * sequences
    starts = [slot * len(text.tokens) // sequences for slot in range(sequences)]
    texts = [[*text.tokens[start:], *text.tokens[:start]] for start in starts]

    def decode(positions: range) -> None:
        for at in positions:
            runtime.decode(slots, [tokens[at] for tokens in texts], [at] * sequences, margins)

    for slot, tokens in zip(slots, texts, strict=True):
        read_prompt(runtime, tokens[: depth - WARM_STEPS], slot=slot)
    decode(range(depth - WARM_STEPS, depth))
    return sequences * STEPS / _median_seconds(lambda: decode(range(depth, depth + STEPS)))


def _memory() -> dict[str, float]:
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    )
    sizes = {"resident_mb": "VmRSS", "peak_mb": "VmHWM"}
    return {name: int(status[key].split()[0]) * 1024 / 1e6 for name, key in sizes.items()}


def _median_seconds(work: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    """Measure the engine named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model", type=Path, help="a bundle, or a GGUF file for llama.cpp")
    parser.add_argument("--context", type=int, required=True, help="positions per slot")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-depth", type=int, default=DEPTHS[-1])
    parser.add_argument("--begun", type=float, required=True, help="time.monotonic() at the start")
    parser.add_argument("--exact", action="store_true", help="compute all logits exactly")
    parser.add_argument("--no-mmap", action="store_true", help="copy Hearth's weights into memory")
    arguments = parser.parse_args()
    margin = ALL_LOGITS if arguments.exact else LOGIT_MARGIN
    text = Text(tokens=json.load(sys.stdin), margin=margin, max_depth=arguments.max_depth)
    runtime, about = ENGINES[arguments.engine](
        arguments.model,
        arguments.context,
        arguments.threads,
        arguments.exact,
        not arguments.no_mmap,
    )
    figures = measure(runtime, text, arguments.begun)
    print(json.dumps({"about": asdict(about), "figures": figures}))  # noqa: T201


if __name__ == "__main__":
    main()
