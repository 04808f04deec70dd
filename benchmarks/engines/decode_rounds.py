"""Bundles and GGUF files, measured in turn: each time in a new process, and behind a new server.

It knows how figures are made, and not how they are shown: decode.py does. Linux only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from baker.compare.sides.open_side import EXACT_LOGITS
from benchmarks.engines.decode_worker import DEPTHS, About
from benchmarks.report.machine import read_bandwidth
from benchmarks.serving.server_commands import hearth, llama_server
from benchmarks.serving.server_process import resources, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from benchmarks.report.figures import Rounds

_ROOT = Path(__file__).parents[2]
_WORKER = "benchmarks.engines.decode_worker"
DECODE = f"decode_{DEPTHS[0]}"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A bundle or a GGUF file, and what runs it.

    exact  whether every logit is to be exact (as by `hearth serve --logits exact`)
    """

    path: Path
    exact: bool = False

    @property
    def name(self) -> str:
        """As in the reports of `hearth compare`, without folders."""
        return (EXACT_LOGITS if self.exact else "") + self.path.absolute().name

    @property
    def ours(self) -> bool:
        """Whether it is a bundle."""
        return self.path.is_dir()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How everything is measured; `server` is llama-server's path, None without it.

    `tokens` are a text that all models read.
    """

    tokens: tuple[int, ...]
    python: str
    server: str | None
    threads: int
    context: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was measured: by the model's name, what it is and its figures of each round."""

    about: dict[str, About]
    rounds: dict[str, Rounds]

    def build(self, model: Model) -> str:
        """How the model is stored, and computed."""
        exact = ", exact logits" if model.exact else ""
        return f"{self.about[model.name].quantisation}{exact}"

    def heading(self, model: Model) -> str:
        """The model in a table or a plot."""
        return f"{'Hearth' if model.ours else 'llama.cpp'} {self.build(model)}"


class BenchmarkError(Exception):
    """It cannot be measured. The message says what is wrong."""


def run_worker(model: Model, bench: Bench) -> tuple[About, dict[str, float]]:
    """Measure a model once, in a process of its own; raises BenchmarkError."""
    engine = "hearth" if model.ours else "llama.cpp"
    python = sys.executable if model.ours else bench.python
    command: list[str | Path] = [python, "-m", _WORKER, engine, model.path]
    options = {"context": bench.context, "threads": bench.threads, "begun": time.monotonic()}
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if model.exact:
        command.append("--exact")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        command,
        env=environment,
        input=json.dumps(bench.tokens),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
        raise BenchmarkError(f"{model.name} ended with {how}: {last}")
    found = json.loads(done.stdout)
    return About(**found["about"]), found["figures"]


def serve_once(model: Model, bench: Bench) -> dict[str, float]:
    """Serve a model until it has answered; nothing where there is no llama-server for it."""
    if model.ours:
        server = hearth(model.path, bench.threads, exact=model.exact)
    elif bench.server is not None:
        server = llama_server(
            bench.server, model.path, slots=1, context=bench.context, threads=bench.threads
        )
    else:
        return {}
    with running(server) as process:
        memory = resources(process.pid).resident_mb
        return {"served_first_s": process.first_token, "served_mb": memory}


def run_rounds(
    models: Sequence[Model], bench: Bench, rounds: int, kl: Mapping[str, float], console: Console
) -> Found:
    """Measure each model once a round; raises BenchmarkError or ServerFailed."""
    found = Found(about={}, rounds={model.name: [] for model in models})
    for number in range(rounds):
        bandwidth = read_bandwidth(bench.threads)
        for model in models if number % 2 == 0 else reversed(models):
            about, figures = run_worker(model, bench)
            figures |= serve_once(model, bench)
            figures |= limit(about.weights_bytes, figures[DECODE], bandwidth)
            if model.name in kl:
                figures["kl"] = kl[model.name]
            found.about[model.name] = about
            found.rounds[model.name].append(figures)
            console.print(
                f"round {number + 1} of {rounds}, {bandwidth:.0f} GB/s: {model.name} decodes "
                f"{figures[DECODE]:.1f} tokens/s",
                highlight=False,
            )
    return found


def limit(weights_bytes: int, decode: float, bandwidth: float) -> dict[str, float]:
    """How near decoding, in tokens/s, comes to reading its weights at `bandwidth` GB/s."""
    return {
        "bandwidth": bandwidth,
        "weights_mb": weights_bytes / 1e6,
        "limit_percent": 100 * decode * weights_bytes / (bandwidth * 1e9),
    }
