"""Measure bundles and GGUF files in rounds, in new processes and behind new servers. Linux only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.engines.decode_worker import DEPTHS, EngineDescription
from benchmarks.engines.gguf_bytes import unread_bytes
from benchmarks.engines.llama_bench import LlamaBench, LlamaBenchError
from benchmarks.serving.server_commands import hearth, llama_server
from benchmarks.serving.server_process import resources, running
from hearthd.baker.compare.sides.open_side import EXACT_LOGITS
from hearthd.baker.memory_bandwidth import read_bandwidth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from benchmarks.report.figures import Rounds

_ROOT = Path(__file__).parents[2]
_WORKER = "benchmarks.engines.decode_worker"
DECODE = f"decode_{DEPTHS[0]}"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A bundle or a GGUF file.

    exact  whether every logit is to be exact (as by `hearth serve --logits exact`)
    bench  measures a GGUF file; None: llama-cpp-python does
    """

    path: Path
    exact: bool = False
    bench: LlamaBench | None = None

    @property
    def name(self) -> str:
        """As in the reports of `hearth compare`, without folders, and the engine of a bench."""
        engine = f" in {self.bench.name}" if self.bench is not None else ""
        return (EXACT_LOGITS if self.exact else "") + self.path.absolute().name + engine

    @property
    def is_hearth(self) -> bool:
        """Whether the model is a bundle."""
        return self.path.is_dir()

    @property
    def engine(self) -> str:
        """The name of the engine in tables."""
        if self.bench is not None:
            return self.bench.name
        return "Hearth" if self.is_hearth else "llama.cpp"


@dataclass(frozen=True, kw_only=True)
class BenchmarkSetup:
    """How to measure; `server` is the path of llama-server, or None.

    `tokens` are the text that all models read. Hearth's weights are `mapped`, or in memory.
    Decoding is measured in contexts of at most `max_depth` tokens.
    """

    tokens: tuple[int, ...]
    python: str
    server: str | None
    threads: int
    context: int
    max_depth: int = DEPTHS[-1]
    mapped: bool = True


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The description and the figures of each round, by the name of the model."""

    about: dict[str, EngineDescription]
    rounds: dict[str, Rounds]

    def build(self, model: Model) -> str:
        """The precision of the weights and the logits."""
        exact = ", exact logits" if model.exact else ""
        return f"{self.about[model.name].quantization}{exact}"

    def heading(self, model: Model) -> str:
        """The name of the model in tables and plots."""
        return f"{model.engine} {self.build(model)}"


class BenchmarkError(Exception):
    """A model cannot be measured; the message says why."""


def run_worker(model: Model, bench: BenchmarkSetup) -> tuple[EngineDescription, dict[str, float]]:
    """Measure a model once in a new process; raises BenchmarkError."""
    if model.bench is not None:
        try:
            limit = min(bench.context, len(bench.tokens))
            return model.bench.measure(model.path, bench.threads, limit, bench.max_depth)
        except LlamaBenchError as error:
            raise BenchmarkError(f"{model.name}: {error}") from error
    engine = "hearth" if model.is_hearth else "llama.cpp"
    python = sys.executable if model.is_hearth else bench.python
    command: list[str | Path] = [python, "-m", _WORKER, engine, model.path]
    options = {
        "context": bench.context,
        "threads": bench.threads,
        "max-depth": bench.max_depth,
        "begun": time.monotonic(),
    }
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if model.exact:
        command.append("--exact")
    if not bench.mapped:
        command.append("--no-mmap")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    result = subprocess.run(
        command,
        env=environment,
        input=json.dumps(bench.tokens),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        code = (
            signal.Signals(-result.returncode).name if result.returncode < 0 else result.returncode
        )
        raise BenchmarkError(f"{model.name} ended with {code}: {last}")
    output = json.loads(result.stdout)
    return EngineDescription(**output["about"]), output["figures"]


def serve_once(model: Model, bench: BenchmarkSetup) -> dict[str, float]:
    """Serve a model until its first answer; returns no figures without a server for it."""
    if model.is_hearth:
        server = hearth(model.path, bench.threads, exact=model.exact, mapped=bench.mapped)
    elif bench.server is not None and model.bench is None:
        server = llama_server(
            bench.server, model.path, slots=1, context=bench.context, threads=bench.threads
        )
    else:
        return {}
    with running(server) as process:
        memory = resources(process.pid).resident_mb
        return {"served_first_s": process.first_token, "served_mb": memory}


def run_rounds(
    models: Sequence[Model],
    bench: BenchmarkSetup,
    rounds: int,
    kl: Mapping[str, float],
    console: Console,
) -> Measurements:
    """Measure every model once per round; raises BenchmarkError or ServerFailed."""
    measurements = Measurements(about={}, rounds={model.name: [] for model in models})
    for number in range(rounds):
        bandwidth = read_bandwidth(bench.threads)
        for model in models if number % 2 == 0 else reversed(models):
            about, figures = run_worker(model, bench)
            if not model.is_hearth:
                read = about.weights_bytes - unread_bytes(model.path)
                about = replace(about, weights_bytes=read)
            figures |= serve_once(model, bench)
            figures |= bandwidth_limit(about.weights_bytes, figures[DECODE], bandwidth)
            if model.name in kl:
                figures["kl"] = kl[model.name]
            measurements.about[model.name] = about
            measurements.rounds[model.name].append(figures)
            console.print(
                f"round {number + 1} of {rounds}, {bandwidth:.0f} GB/s: {model.name} decodes "
                f"{figures[DECODE]:.1f} tokens/s",
                highlight=False,
            )
    return measurements


def bandwidth_limit(weights_bytes: int, decode: float, bandwidth: float) -> dict[str, float]:
    """The decode speed in tokens/s relative to reading the weights at `bandwidth` GB/s."""
    return {
        "bandwidth": bandwidth,
        "weights_mb": weights_bytes / 1e6,
        "limit_percent": 100 * decode * weights_bytes / (bandwidth * 1e9),
    }
