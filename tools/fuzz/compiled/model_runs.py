"""Compile random models, and compare each entry point with NumPy.

A model runs in a process of its own: see program_runs.py. The compiler's message, or the first
result that differs, names the entry point. `make_model` makes the model of a seed again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.parameters.irpa import ArchiveWriter
from hearthd.models.dsl.evaluate import evaluate
from tools.fuzz.compiled import long_run
from tools.fuzz.compiled.long_run import FindingFile
from tools.fuzz.compiled.model_maker import make_model
from tools.fuzz.compiled.program_compiler import compile_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph
    from tests.models.compiled import Loaded
    from tools.fuzz.compiled.long_run import State
    from tools.fuzz.compiled.model_maker import Model

    Array = NDArray[Any]

# The largest difference from NumPy, as a fraction of the largest value of the result (at least 1),
# by precision: a few layers of rounding, and far below what a wrong row makes. The second one
# is for matrices in groups.
TOLERANCES, IN_GROUPS = {"f32": 3e-5, "bf16": 3e-2}, 1e-3
# For a model, on a machine that does other things too.
SECONDS = 900.0


def check_model(model: Model) -> tuple[int, list[tuple[str, str]]]:
    """How many entry points were compared, and what was found: its kind, and one line."""
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / "params.irpa"
        _write(model.weights, archive)
        compiled, rejected = compile_graphs(model.graphs, Path(name), archive)
        findings = [("refused", f"{point}: {reason}") for point, reason in rejected.items()]
        compared = 0
        for graph, arrays in zip(model.graphs, model.arguments, strict=True):
            if compiled is not None and graph.name not in rejected:
                compared += 1
                differing = _difference(graph, arrays, model, compiled.loaded)
                findings += [("compiled", f"{graph.name}: {differing}")] if differing else []
    return compared, findings


def _write(weights: Mapping[str, Array], path: Path) -> None:
    stored = {name: array for name, array in weights.items() if array.size}
    with ArchiveWriter(path, {name: array.nbytes for name, array in stored.items()}) as archive:
        for name, array in stored.items():
            archive.write(name, np.ascontiguousarray(array).view(np.uint8).reshape(-1))


def _difference(graph: Graph, arrays: Sequence[Array], model: Model, compiled: Loaded) -> str:
    """The largest difference, if it is above the tolerance; else nothing."""
    with np.errstate(all="ignore"):
        expected = evaluate(graph, list(arrays), model.weights)
    for i, (actual, reference) in enumerate(
        zip(compiled.call(graph, arrays), expected, strict=True)
    ):
        apart = np.abs(actual.astype(np.float64) - reference)
        limit = TOLERANCES.get(model.precision, IN_GROUPS) * max(
            1.0, float(np.abs(reference).max())
        )
        if not float(apart.max()) <= limit:
            return (
                f"result {i} of {reference.shape} differs by {apart.max():.3g}, limit {limit:.3g}"
            )
    return ""


def run(seed: int, minutes: float, keep: Path, say: Callable[[str], None]) -> int:
    """As long_run.run: one model after the other."""
    return long_run.run("models", seed, minutes, keep, say, _check_apart)


def _check_apart(seed: int, _: State) -> tuple[int, int, list[FindingFile]]:
    """Check the model of a seed in another process."""
    command = [sys.executable, "-m", "tools.fuzz.compiled.model_runs", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        compared, findings = 0, [("crash", (done.stderr.strip().splitlines() or [""])[-1][:200])]
    else:
        compared, findings = json.loads(done.stdout.splitlines()[-1])
    text = make_model(seed).text if findings else ""
    return (
        1,
        compared,
        [
            FindingFile(
                cause=f"{cause} {detail.partition(':')[2][:30]}",
                name=f"model_{cause}_{seed}_{i}",
                record={"seed": seed, "detail": detail, "model": text},
                text=f"{cause}, seed {seed}: {detail}\n    {text}",
            )
            for i, (cause, detail) in enumerate(findings)
        ],
    )


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(check_model(make_model(int(sys.argv[1])))) + "\n")
