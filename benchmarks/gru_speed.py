"""Measure the three forms of the GRU against torch.nn.GRU, and their compilation.

    python -m benchmarks.gru_speed --rounds 5 --json figures.json

First tables: one layer of H states reads 100 steps of H inputs, one sequence, f32, with the same
weights and number of threads for both engines. Every measurement is a new process, and the order of
the engines alternates between rounds. Without torch, its column is omitted.

Last table: compilation time, program size and time per call, by the number of steps. A compiler
that exceeds --limit is killed and its row says so; a form that is killed at 100 steps is not in the
first tables. Compiling 1000 unrolled steps takes minutes and needs --long.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from benchmarks.engines.gru_worker import EXPECTED, GruModel, measure_in_process
from benchmarks.report.figures import Figure, Rounds, figures_table, print_figures
from benchmarks.report.machine import describe_machine, physical_cores, write_json
from hearthd.baker.compiler.compilation import Compilation, CompileError
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.parameters.irpa import ArchiveWriter
from hearthd.baker.presentation.table import Table, print_table
from hearthd.models.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.gru import FORMS, GruConfig, program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEPS = 100
HIDDEN = (64, 128, 256)
GROWTH_STEPS = (10, 100, 1000)
GROWTH_HIDDEN = 64
FIGURES = tuple(Figure(str(hidden), f"H = {hidden}, ms") for hidden in HIDDEN)


@dataclass(frozen=True, kw_only=True)
class CompiledModel:
    """The compilation of a model: seconds, size in bytes, or the reason of a failure."""

    model: GruModel
    seconds: float
    size: int
    failure: str | None


def compile_model(model: GruModel, top: Path, limit: float) -> CompiledModel:
    """Write the weights, the expected result and the program of a model into its folder."""
    folder = top / model.name
    folder.mkdir()
    config = GruConfig(
        inputs=model.hidden,
        hidden=model.hidden,
        layers=1,
        bidirectional=False,
        bias=True,
        steps=model.steps,
        batch=1,
        batch_first=False,
        form=model.form,
    )
    run, weights = program(config).graphs[0], model.weights()
    sizes = {name: array.nbytes for name, array in weights.items()}
    with ArchiveWriter(folder / PARAMETERS, sizes) as archive:
        for name, array in weights.items():
            archive.write(name, array)
    y, _ = evaluate(run, [model.x(), np.zeros((1, 1, model.hidden), np.float32)], weights)
    np.save(folder / EXPECTED, y)
    text, vmfb, began = folder / "model.mlir", folder / VMFB, time.perf_counter()
    text.write_text(module_text("gru", [run], PARAMETER_SCOPE), encoding="utf-8")
    try:
        with Compilation(text, vmfb, find_target("host")) as compilation:
            compilation.wait(seconds=limit)
    except CompileError as error:
        seconds = time.perf_counter() - began
        return CompiledModel(model=model, seconds=seconds, size=0, failure=str(error))
    seconds = time.perf_counter() - began
    return CompiledModel(model=model, seconds=seconds, size=vmfb.stat().st_size, failure=None)


def run_rounds(
    top: Path, rounds: int, threads: int, forms: Sequence[str], *, torch: bool
) -> dict[str, Rounds]:
    """Milliseconds by H of each round, for each form and torch."""
    columns = {
        form: [GruModel(form=form, hidden=hidden, steps=STEPS) for hidden in HIDDEN]
        for form in forms
    }
    ours = [model for models in columns.values() for model in models]
    # torch has one form; its inputs do not depend on the form.
    sides = {"hearth": ours, "torch": columns[forms[0]]} if torch else {"hearth": ours}
    measured: dict[str, Rounds] = {name: [] for name in (*forms, *(["torch"] if torch else []))}
    for number in range(rounds):
        for side in list(sides) if number % 2 == 0 else reversed(sides):
            times = measure_in_process(side, sides[side], top, threads)
            for column in forms if side == "hearth" else ("torch",):
                models = columns.get(column, columns[forms[0]])
                measured[column].append({str(one.hidden): times[one.name] for one in models})
    return measured


def ratios(measured: Mapping[str, Rounds]) -> str:
    """The time of torch divided by that of each form, by medians."""
    median = {
        column: [statistics.median(of[figure.name] for of in rounds) for figure in FIGURES]
        for column, rounds in measured.items()
    }
    if "torch" not in median:
        return "torch is not installed, so its column is omitted"
    texts = []
    for form in (column for column in median if column != "torch"):
        pairs = zip(median["torch"], median[form], strict=True)
        texts.append(" ".join([form, *(f"{theirs / ours:.2f}" for theirs, ours in pairs)]))
    return f"time of torch / time of the form, by H: {', '.join(texts)}"


def print_growth(compiled: Sequence[CompiledModel], milliseconds: Mapping[str, float]) -> None:
    """Print the table of compilation."""
    rows = []
    for one in compiled:
        size = f"{one.size / 1000:.0f}" if one.failure is None else "-"
        call = one.failure or f"{milliseconds[one.model.name]:.3g}"
        rows.append((one.model.form, str(one.model.steps), f"{one.seconds:.1f}", size, call))
    print_table(
        Table(
            title=f"H = {GROWTH_HIDDEN}, 1 thread",
            headings=("form", "steps", "compilation, s", "program, KB", "call, ms"),
            rows=tuple(rows),
        )
    )


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, physical_cores()}))
    parser.add_argument("--long", action="store_true", help="also compile 1000 unrolled steps")
    parser.add_argument("--limit", type=float, default=120, help="seconds per compilation")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def models(*, long: bool) -> list[GruModel]:
    """The models of the first tables, then those that only the last table has."""
    chosen = [GruModel(form=form, hidden=h, steps=STEPS) for h in HIDDEN for form in FORMS]
    for steps in GROWTH_STEPS:
        for form in FORMS:
            model = GruModel(form=form, hidden=GROWTH_HIDDEN, steps=steps)
            if model not in chosen and (long or (form, steps) != ("unrolled", GROWTH_STEPS[-1])):
                chosen.append(model)
    return chosen


def main() -> None:
    """Compile, measure, print the tables and write the figures."""
    arguments = options()
    console = Console(stderr=True)
    torch = importlib.util.find_spec("torch") is not None
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        compiled = []
        for model in models(long=arguments.long):
            compiled.append(compile_model(model, top, arguments.limit))
            said = compiled[-1].failure or f"{compiled[-1].seconds:.1f} s"
            console.print(f"{model.name}: {said}", highlight=False)
        late = {one.model.form for one in compiled if one.failure and one.model.steps == STEPS}
        forms = [form for form in FORMS if form not in late]
        machine = describe_machine(max(arguments.threads))
        by_threads = {}
        for threads in arguments.threads:
            measured = run_rounds(top, arguments.rounds, threads, forms, torch=torch)
            title = f"{machine}; {threads} threads used, medians of {arguments.rounds} rounds"
            print_figures(figures_table(title, FIGURES, measured))
            Console().print(ratios(measured), highlight=False, soft_wrap=True)
            by_threads[str(threads)] = measured
        growth = [one for one in compiled if one.model.hidden == GROWTH_HIDDEN]
        growth.sort(key=lambda one: one.model.steps)
        whole = [one.model for one in growth if one.failure is None]
        milliseconds = measure_in_process("hearth", whole, top, 1)
        print_growth(growth, milliseconds)
    if arguments.json is not None:
        write_json(
            arguments.json,
            machine,
            milliseconds_by_threads=by_threads,
            compiled=[asdict(one) for one in compiled],
            milliseconds_by_steps=milliseconds,
        )


if __name__ == "__main__":
    main()
