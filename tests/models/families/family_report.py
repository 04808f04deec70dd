"""Print the table of docs/supported-models.md: python -m tests.models.families.family_report

Hearth computes in NumPy; what transformers computed is recorded in tests/golden.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from baker.weights.open_weights import open_weights
from models.dsl.evaluate import evaluate
from tests.models.families import ours
from tests.models.families.cases import CASES, TOKENS
from tests.models.families.encoder_cases import ENCODER_CASES, LENGTH, TEXTS, recorded_encoder
from tests.models.families.family_recording import ROWS, recorded, write_folder
from tests.models.families.test_encoders import opened, padded

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODELS = Path(__file__).parents[3] / "models"
# Files whose names are not those of their architectures.
FILES = {"gemma-embedding": "embeddinggemma", "xlm-roberta": "xlm_roberta"}


def difference(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def decoder(name: str, folder: Path) -> tuple[float, str]:
    """The difference of a case, and whether its most likely tokens are equal."""
    case, recording = CASES[name], recorded(name)
    write_folder(recording, folder)
    logits = ours.logits(open_weights(folder), case.architecture, folder, TOKENS)
    equal = logits.argmax(axis=1).tolist() == recording.greedy
    return difference(logits[ROWS], recording.logits), "all equal" if equal else "different"


def encoder(name: str, folder: Path) -> tuple[float, str]:
    """The difference of a case, which has no tokens."""
    case, recording = ENCODER_CASES[name], recorded_encoder(name)
    recording.write(folder)
    model = opened(folder, case.architecture)
    (graph,) = model.program.graphs
    (vectors,) = evaluate(graph, padded(name, LENGTH, TEXTS), model.parameters)
    return difference(vectors, recording.vectors), "vectors"


def main() -> None:
    """Print a row for each architecture."""
    results: dict[str, list[tuple[float, str]]] = {}
    for cases, compute in ((CASES, decoder), (ENCODER_CASES, encoder)):
        for name, case in cases.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model"
                path.mkdir()
                result = compute(name, path)
            results.setdefault(case.architecture, []).append(result)
    table = [
        "| Architecture | Lines of its file | Cases | Largest difference | Most likely tokens |",
        "|---|---|---|---|---|",
    ]
    for architecture, pairs in sorted(results.items()):
        file = FILES.get(architecture, architecture)
        lines = len((MODELS / f"{file}.py").read_text(encoding="utf-8").splitlines())
        tokens = ", ".join(sorted({words for _, words in pairs}))
        worst = max(difference_ for difference_, _ in pairs)
        table.append(f"| `{file}` | {lines} | {len(pairs)} | {worst:.1e} | {tokens} |")
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
