"""Measure decoding with experts that are larger than memory, in turns with a plain reading program.

    python -m benchmarks.synthetic_weights gemma-3-270m-q4_k_m.gguf qwen3-30b-a3b q.gguf --layers 8
    hearth bake qwen3-moe --weights q.gguf --max-memory 1400M --context 1024 --slots 1 --out q
    python -m benchmarks.streamed_experts q --limit 1400

A process in a control group with a memory limit decodes random tokens. After each round, threads
read random blocks of the weights for as long, past the system's cache, and compute nothing. The
share is what decoding reads from the file a second, over what the threads read. Linux, as root.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.inputs import existing_bundle
from benchmarks.serving.memory_group import group
from hearthd.bundle import PARAMETERS
from hearthd.runtime.expert_cache import open_direct
from hearthd.runtime.interface import read_prompt
from hearthd.runtime.open_bundle import open_bundle

# The random reads: bytes of a block, about the integers of an expert, and blocks at the same time.
BLOCK, READERS = 768 << 10, 16
PROMPT, WARM_STEPS = 16, 8  # tokens
PAUSE = 1.0  # seconds before each round: storage in a cloud allows bursts


def plain_speed(file: Path, seconds: float) -> float:
    """Bytes/s at which threads read random blocks."""
    descriptor = open_direct(file)
    blocks, end = os.fstat(descriptor).st_size // BLOCK, time.perf_counter() + seconds

    def read(seed: int) -> int:
        chosen, count = random.Random(seed), 0
        with mmap.mmap(-1, BLOCK) as memory:
            while not count or time.perf_counter() < end:
                count += os.preadv(descriptor, [memory], chosen.randrange(blocks) * BLOCK)
        return count

    began = time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        count = sum(pool.map(read, range(READERS)))
    os.close(descriptor)
    return count / (time.perf_counter() - began)


def read_bytes() -> int:
    """The bytes that the storage has sent to this process."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def measure(bundle: Path, threads: int, steps: int, rounds: int) -> None:
    """Print the speed of decoding and of plain reads, by round, and medians."""
    manifest, runtime = open_bundle(bundle, threads=threads)
    needed = PROMPT + WARM_STEPS + steps * rounds
    if runtime.context < needed:
        sys.exit(f"{bundle}: got a context of {runtime.context}, expected at least {needed}")
    tokens = np.random.default_rng(0).integers(0, manifest.vocab_size, runtime.context).tolist()
    read_prompt(runtime, tokens[:PROMPT])
    positions = iter(range(PROMPT, runtime.context))

    def decode(count: int) -> None:
        for at in islice(positions, count):
            runtime.decode([0], [tokens[at]], [at], [False])

    decode(WARM_STEPS)
    console, figures = Console(highlight=False, width=200), []
    for _ in range(rounds):
        time.sleep(PAUSE)
        before, began = read_bytes(), time.perf_counter()
        decode(steps)
        seconds = time.perf_counter() - began
        read = read_bytes() - before
        time.sleep(PAUSE)
        plain = plain_speed(bundle / PARAMETERS, seconds)
        figures.append((steps / seconds, read / steps / 1e6, read / seconds / 1e6, plain / 1e6))
        console.print(_text(figures[-1]))
    medians = tuple(statistics.median(column) for column in zip(*figures, strict=True))
    shares = sorted(decoding / plain for _, _, decoding, plain in figures)
    console.print("median:", _text(medians))
    median = statistics.median(shares)
    console.print(f"share: median {median:.2f}, {shares[0]:.2f} to {shares[-1]:.2f}")


def _text(figures: tuple[float, ...]) -> str:
    rate, read, decoding, plain = figures
    return (
        f"{rate:.2f} tokens/s, {read:.1f} MB read per token, {decoding:.0f} MB/s; "
        f"plain reads {plain:.0f} MB/s"
    )


def main() -> None:
    """Measure the bundle on the command line, in a control group."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--limit", type=float, help="memory of the control group, in MB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=32, help="tokens of a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.limit is None:
        measure(arguments.bundle, arguments.threads, arguments.steps, arguments.rounds)
        return
    command = [sys.executable, "-m", "benchmarks.streamed_experts", str(arguments.bundle)]
    for name in ("threads", "steps", "rounds"):
        command += [f"--{name}", str(vars(arguments)[name])]
    with group(int(arguments.limit * 1e6)) as limited:
        subprocess.run(limited.inside(tuple(command)), check=True)
        Console(highlight=False).print(f"peak {limited.peak() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
