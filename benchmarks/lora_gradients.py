"""Measure one forward and gradient of a real model with LoRA: compilation, time and memory.

    python -m benchmarks.lora_gradients --weights gemma3-270m-bf16.gguf --tokens 32 128 512

The model reads one sequence of random tokens; the gradients are those of adapters on all
projections of all layers. The weights are frozen: a program maps them, and keeps copies in the
layouts of its kernels. --check compares loss and gradients with NumPy, which takes some GB.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.engines.lora_worker import (
    LoraGradient,
    compare_with_numpy,
    compile_gradient,
    in_process,
    run_gradient,
)
from benchmarks.report.machine import describe_machine, physical_cores, write_json
from hearthd.baker.presentation.table import Table, print_table

# The name of a figure, its heading and its format.
COLUMNS = (
    ("compile_cpu_seconds", "compile, CPU s", ".1f"),
    ("compile_peak_mb", "compile, MB", ".0f"),
    ("step_seconds", "step, s", ".2f"),
    ("step_cpu_seconds", "step, CPU s", ".2f"),
    ("peak_mb", "peak, MB", ".0f"),
    ("loss_error", "loss, error", ".1e"),
    ("gradient_error", "gradients, error", ".1e"),
)


def measure(task: LoraGradient, *, threads: int, steps: int, check: bool) -> dict[str, float]:
    """The figures of one number of tokens, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = in_process(compile_gradient, task, folder)
        figures |= in_process(run_gradient, task, folder, threads, steps)
        if check:
            figures |= in_process(compare_with_numpy, task, folder)
    return figures


def table(title: str, measured: dict[int, dict[str, float]]) -> Table:
    """A row for each number of tokens; a figure that was not measured has no column."""
    shown = [column for column in COLUMNS if any(column[0] in one for one in measured.values())]
    return Table(
        title=title,
        headings=("tokens", *(heading for _, heading, _ in shown)),
        rows=tuple(
            (str(tokens), *(format(figures[name], form) for name, _, form in shown))
            for tokens, figures in measured.items()
        ),
    )


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE", help="a GGUF file")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--precision", choices=("f32", "bf16"), default="bf16")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3, help="steps after the first one")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--check", action="store_true", help="compare with NumPy")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table and write the figures."""
    arguments = options()
    machine = describe_machine(arguments.threads)
    measured = {}
    for tokens in arguments.tokens:
        task = LoraGradient(
            weights=arguments.weights,
            precision=arguments.precision,
            rank=arguments.rank,
            tokens=tokens,
        )
        measured[tokens] = measure(
            task, threads=arguments.threads, steps=arguments.steps, check=arguments.check
        )
    title = f"{arguments.weights.name}, {arguments.precision}, rank {arguments.rank}; {machine}"
    print_table(table(title, measured))
    if arguments.json is not None:
        write_json(arguments.json, machine, gradients=measured)


if __name__ == "__main__":
    main()
