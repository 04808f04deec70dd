"""Our bundle and llama.cpp on this machine, interleaved: speed, time to load, memory.

    python -m benchmarks.compare BUNDLE --llama-cpp MODEL.gguf --rounds 5 --json figures.json

Compare like with like: a bf16 bundle with a BF16 GGUF, an int8 bundle with a Q8_0 one. Every
measurement is a fresh process (worker.py), the engines take turns, and each round is led by the
other one, so that a busy neighbour hits both. Without --llama-cpp only the bundle is measured.
llama.cpp may live in another environment: --llama-python names its interpreter. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.report import (
    Figure,
    Rounds,
    look_at_machine,
    physical_cores,
    print_table,
    write_json,
)
from models.bundle import LanguageManifest, read_manifest_of

HERE = Path(__file__).resolve().parent
# All engines are given the same tokens; decode is timed over 64 steps that begin 136 tokens deep,
# and the first token follows a prompt of 128. Both times begin with the process.
FIGURES = (
    Figure("decode", "decode, tokens/s", more_is_better=True),
    Figure("prefill_128", "prefill 128, tokens/s", more_is_better=True),
    Figure("prefill_512", "prefill 512, tokens/s", more_is_better=True),
    Figure("load_s", "loaded, s"),
    Figure("first_token_s", "first token, s"),
    Figure("resident_mb", "resident, MB"),
    Figure("peak_mb", "peak, MB"),
)


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
) -> dict[str, Rounds]:
    """The figures of each engine, one for each round."""
    measured: dict[str, Rounds] = {engine.name: [] for engine in engines}
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
    manifest = read_manifest_of(arguments.bundle, LanguageManifest)
    engines = [Engine(name="hearth", python=sys.executable, model=arguments.bundle)]
    if arguments.llama_cpp is not None:
        theirs = Engine(name="llama.cpp", python=arguments.llama_python, model=arguments.llama_cpp)
        engines.append(theirs)
    machine = look_at_machine(arguments.threads)
    try:
        measured = run_rounds(
            engines, arguments.rounds, manifest.context, arguments.threads, console
        )
    except EngineError as error:
        sys.exit(f"compare: {error}")
    title = f"{machine}; {manifest.precision} bundle, medians of {arguments.rounds} rounds"
    print_table(title, FIGURES, measured)
    if arguments.json is not None:
        write_json(
            arguments.json,
            machine,
            models={engine.name: engine.model.name for engine in engines},
            precision=manifest.precision,
            rounds=measured,
        )


if __name__ == "__main__":
    main()
