"""Our bundle and llama.cpp on this machine, interleaved: speed, time to load, memory.

    python benchmarks/compare.py BUNDLE --llama-cpp MODEL.gguf --rounds 5 --json figures.json

Compare like with like: a bf16 bundle with a BF16 GGUF, an int8 bundle with a Q8_0 one. Every
measurement is a fresh process (worker.py), the engines take turns, and each round is led by the
other one, so that a busy neighbour hits both. Without --llama-cpp only the bundle is measured.
llama.cpp may live in another environment: --llama-python names its interpreter. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from models.bundle import read_manifest

HERE = Path(__file__).resolve().parent
# Figure of a worker, what the table calls it, and whether more is better. All engines are given
# the same tokens; decode is timed over 64 steps that begin 136 tokens deep, and the first token
# follows a prompt of 128. Both times begin with the process.
FIGURES = (
    ("decode", "decode, tokens/s", True),
    ("prefill_128", "prefill 128, tokens/s", True),
    ("prefill_512", "prefill 512, tokens/s", True),
    ("load_s", "loaded, s", False),
    ("first_token_s", "first token, s", False),
    ("resident_mb", "resident, MB", False),
    ("peak_mb", "peak, MB", False),
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where it was measured; bandwidth in GB/s with `threads` threads, load as in uptime."""

    cpu: str
    cores: int
    threads: int
    read_bandwidth: float
    load_before: float
    load_after: float


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One side: the interpreter that has it, and the model that it loads."""

    name: str
    python: str
    model: Path


class EngineError(Exception):
    """A worker failed. The message is the end of what it wrote."""


def run_worker(engine: Engine, context: int, threads: int, console: Console) -> dict[str, float]:
    """Measure an engine once, in a process of its own; raises EngineError."""
    command: list[str | Path] = [engine.python, HERE / "worker.py", engine.name, engine.model]
    options = {"context": context, "threads": threads, "begun": time.monotonic()}
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
        if not done.stdout:
            raise EngineError(f"{engine.name} ended with {how}: {last}")
        console.print(f"{engine.name} was measured, then ended with {how}: {last}", style="red")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run_rounds(
    engines: list[Engine], rounds: int, context: int, threads: int, console: Console
) -> dict[str, list[dict[str, float]]]:
    """The figures of each engine, one for each round."""
    measured: dict[str, list[dict[str, float]]] = {engine.name: [] for engine in engines}
    for number in range(rounds):
        for engine in engines if number % 2 == 0 else reversed(engines):
            figures = run_worker(engine, context, threads, console)
            measured[engine.name].append(figures)
            console.print(
                f"round {number + 1} of {rounds}: {engine.name} decodes "
                f"{figures['decode']:.1f} tokens/s",
                highlight=False,
            )
    return measured


def physical_cores() -> int:
    """The cores that this process may use, not counting a second thread of a core."""
    allowed = os.sched_getaffinity(0)
    topology = Path("/sys/devices/system/cpu")
    siblings = {
        (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text("utf-8")
        for cpu in allowed
        if (topology / f"cpu{cpu}/topology/thread_siblings_list").exists()
    }
    return len(siblings) or len(allowed)


def cpu_name() -> str:
    """What the CPU calls itself."""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def read_bandwidth(threads: int) -> float:
    """GB/s of summing 1 GiB, far more than the caches hold, with that many threads; best of 5."""
    parts = np.array_split(np.ones(1 << 28, np.float32), threads)

    def once() -> float:
        began = time.perf_counter()
        workers = [threading.Thread(target=part.sum) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(part.nbytes for part in parts) / (time.perf_counter() - began) / 1e9

    return max(once() for _ in range(5))


def table(measured: dict[str, list[dict[str, float]]]) -> Table:
    """Medians with the smallest and largest of the rounds, and our median over theirs."""
    result = Table("", box=None, padding=(0, 1))
    for name in measured:
        result.add_column(name, justify="right")
        result.add_column("min to max", style="dim")
    if len(measured) == 2:
        result.add_column("ratio", justify="right")
    for name, label, more_is_better in FIGURES:
        columns = [[figures[name] for figures in rounds] for rounds in measured.values()]
        medians = [statistics.median(column) for column in columns]
        cells = [label]
        for median, column in zip(medians, columns, strict=True):
            cells += [f"{median:.4g}", f"{min(column):.4g} to {max(column):.4g}"]
        if len(medians) == 2:
            cells.append(f"{medians[0] / medians[1]:.2f}{' ' if more_is_better else '*'}")
        result.add_row(*cells)
    return result


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--llama-cpp", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--llama-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=physical_cores(), help="of both engines")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, write the figures."""
    arguments = options()
    console = Console(stderr=True)
    manifest = read_manifest(arguments.bundle)
    engines = [Engine(name="hearth", python=sys.executable, model=arguments.bundle)]
    if arguments.llama_cpp is not None:
        theirs = Engine(name="llama.cpp", python=arguments.llama_python, model=arguments.llama_cpp)
        engines.append(theirs)
    load_before = os.getloadavg()[0]
    bandwidth = read_bandwidth(arguments.threads)
    try:
        measured = run_rounds(
            engines, arguments.rounds, manifest.context, arguments.threads, console
        )
    except EngineError as error:
        sys.exit(f"compare: {error}")
    machine = Machine(
        cpu=cpu_name(),
        cores=physical_cores(),
        threads=arguments.threads,
        read_bandwidth=bandwidth,
        load_before=load_before,
        load_after=os.getloadavg()[0],
    )
    out = Console()
    out.print(
        f"{machine.cpu}, {machine.threads} threads, {bandwidth:.0f} GB/s read, load "
        f"{load_before:.1f} before; {manifest.precision} bundle, medians of "
        f"{arguments.rounds} rounds",
        highlight=False,
        soft_wrap=True,
    )
    out.print(table(measured))
    if len(engines) == 2:
        out.print("ratio: hearth / llama.cpp; * less is better")
    if arguments.json is not None:
        data = {
            "machine": asdict(machine),
            "models": {engine.name: engine.model.name for engine in engines},
            "precision": manifest.precision,
            "rounds": measured,
        }
        arguments.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
