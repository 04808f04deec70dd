"""Measure a GGUF file with llama-bench of llama.cpp, or of a fork of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from benchmarks.engines.decode_worker import (
    PROMPTS,
    REPETITIONS,
    STEPS,
    EngineDescription,
    measured_depths,
    prefill_repetitions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class LlamaBenchError(Exception):
    """llama-bench ended with an error; the message has its last line."""


@dataclass(frozen=True)
class LlamaBench:
    """A program with the options and the output of llama-bench.

    name     of the engine in tables
    command  the program and options of the engine, such as `-rtr 1`
    """

    name: str
    command: tuple[str, ...]

    def measure(
        self, model: Path, threads: int, context: int, max_depth: int
    ) -> tuple[EngineDescription, dict[str, float]]:
        """The same rates as decode_worker.py, in tokens/s; raises LlamaBenchError."""
        common = ("-m", str(model), "-t", str(threads))
        rows = [
            row
            for size in PROMPTS
            if size <= context
            for row in self._rows(
                *common, "-r", str(prefill_repetitions(size)), "-p", str(size), "-n", "0"
            )
        ]
        figures = {f"prefill_{row['n_prompt']}": float(row["avg_ts"]) for row in rows}
        for depth in measured_depths(context, max_depth):
            options = ("-r", str(REPETITIONS), *self._decode_options(depth))
            (row,) = self._rows(*common, *options)
            figures[f"decode_{depth}"] = float(row["avg_ts"])
        about = EngineDescription(
            # such as "gemma3 270M Q4_K - Medium"
            quantization=rows[0]["model_type"].split(" ", 2)[2],
            weights_bytes=rows[0]["model_size"],
            versions={self.name: str(rows[0]["build_commit"])},
        )
        return about, figures

    def _decode_options(self, depth: int) -> tuple[str, ...]:
        """Forks of before `--n-depth` read a prompt and measure what follows it."""
        if self._has_depth:
            return ("-p", "0", "-n", str(STEPS), "-d", str(depth))
        return ("-p", "0", "-n", "0", "-gp", f"{depth},{STEPS}")

    @cached_property
    def _has_depth(self) -> bool:
        return "--n-depth" in self._run("--help")

    def _rows(self, *options: str) -> Sequence[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self._run(*options, "-o", "json"))
        return rows

    def _run(self, *options: str) -> str:
        try:
            result = subprocess.run(
                [*self.command, *options], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise LlamaBenchError(f"{self.name}: {error}") from error
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no output"])[-1]
            raise LlamaBenchError(f"{self.name} ended with {result.returncode}: {last}")
        return result.stdout
