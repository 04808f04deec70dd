"""Measure the KL divergence from F32 that rounding the layers alone costs, in NumPy.

    python -m benchmarks.off_grid gemma3-q4_k_m.gguf off-grid.gguf
    python -m benchmarks.layer_kl off-grid.gguf int4-g32 int4-g32:nearest off-grid-iq4_nl.gguf

The first argument is an F32 GGUF file. The others are precisions that round by a calibration text,
the name of a storage with `:nearest` for rounding each weight by itself, and GGUF files of the same
model, of any type, such as llama-quantize writes. All read the texts of `hearth compare`. The
embedding table, the head and the activations are those of F32, so that only the layers differ.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.calibration.calibrated_layers import calibrated_layers
from hearthd.baker.calibration.calibration_text import calibration_text, sequences
from hearthd.baker.calibration.reading import FileWeights, hidden_states, logits
from hearthd.baker.calibration.token_weights import token_weights
from hearthd.baker.compare.measurement.passages import shipped_texts
from hearthd.baker.compare.measurement.position_metrics import kl_divergence
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.baker.parameters.quantization import encoded
from hearthd.baker.presentation.table import Table, print_table
from hearthd.baker.tokenizer.tokenizer_files import answer_tokenizer, special_tokens
from hearthd.baker.weights.gguf import GgufSource
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.storage import Storage

    Array = NDArray[Any]

_NEAREST = ":nearest"
_ROWS = 256  # that are looked up at a time


def stored_values(storage: Storage, arrays: Sequence[Array], rows: int) -> NDArray[np.float32]:
    """The matrix (N, K) that stored arrays stand for."""
    table = storage.table or storage
    types = {f"x{i}": TensorType(x.shape, DType.of(x.dtype)) for i, x in enumerate(arrays)}
    blocks = []
    for start in range(0, rows, _ROWS):
        ids = np.arange(start, min(rows, start + _ROWS), dtype=np.int32)
        graph = trace(
            "rows",
            lambda ids, *arrays: (table.rows(ids, *arrays),),
            {"ids": TensorType(ids.shape, DType.I32), **types},
        )
        blocks.append(evaluate(graph, [ids, *arrays], {})[0])
    return np.concatenate(blocks)


@dataclass(frozen=True)
class Layers:
    """A model in F32, whose layers' matrices are replaced. `every` n-th position is compared."""

    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    texts: Sequence[tuple[int, ...]]
    every: int

    @cached_property
    def matrices(self) -> list[str]:
        """The names of the layers' matrices."""
        parameters = self.architecture.model(self.config).parameters()
        return [
            name
            for name, tensor in parameters.items()
            if name.startswith("layers.") and tensor.type.rank == 2
        ]

    def divergences(self, matrices: Mapping[str, Array]) -> list[float]:
        """KL(F32 || with these matrices) at each compared position."""
        pairs = zip(self._exact, self._predictions(matrices), strict=True)
        return [kl_divergence(p.probabilities, p.logprobs, q.logprobs) for p, q in pairs]

    @cached_property
    def _exact(self) -> list[FullPrediction]:
        return self._predictions({})

    def _predictions(self, matrices: Mapping[str, Array]) -> list[FullPrediction]:
        model = (self.source, self.architecture, self.config)
        with tempfile.TemporaryDirectory(prefix="hearth-") as name:
            states = [
                hidden_states(
                    *model,
                    np.array([tokens], np.int32),
                    Path(name),
                    lambda parameter, _, __, weight: matrices.get(parameter, weight),
                )[1 :: self.every]
                for tokens in self.texts
            ]
            rows = logits(*model, np.concatenate(states), Path(name))
        return [FullPrediction(row) for row in rows]

    def values(self, source: WeightSource) -> FileWeights:
        """The parameters of another file of the same model."""
        parameters = self.architecture.model(self.config).parameters()
        return FileWeights(source, self.architecture, self.config, parameters, Path())

    def nearest(self, storage: Storage) -> dict[str, Array]:
        """Each weight of the layers rounded by itself."""
        values, table = self.values(self.source), storage.table or storage
        rounded = {}
        for name in self.matrices:
            weight = values[name]
            rounded[name] = stored_values(storage, encoded(table, weight), len(weight))
        return rounded

    def calibrated(self, storage: Storage, tokens: NDArray[np.int32]) -> dict[str, Array]:
        """The layers rounded for the calibration text."""
        parameters = self.architecture.model(self.config).parameters()
        model = (self.source, self.architecture, self.config)
        with tempfile.TemporaryDirectory(prefix="hearth-") as name:
            folder = Path(name)
            weights = token_weights(*model, self.matrices, tokens, folder, lambda _: None)
            storages = dict.fromkeys(self.matrices, storage)
            made = calibrated_layers(*model, storages, tokens, weights, folder, lambda _: None)
            return {
                name: stored_values(storage, stored, parameters[name].shape[0])
                for name, stored in made.arrays.items()
            }


def measure(source: WeightSource, candidates: Sequence[str], every: int) -> Table:
    """A row for each candidate; raises a WeightsError."""
    architecture = ARCHITECTURES[str(source.metadata()["general.architecture"])]
    shapes = {name: source.shape(name) for name in source.names()}
    config = architecture.from_gguf(source.metadata(), shapes, source.read)
    tokenizer, bos = answer_tokenizer(source), special_tokens(source).bos
    start = () if bos is None else (bos,)
    texts = [
        (*start, *tokenizer.encode(text, add_special_tokens=False).ids)
        for text in shipped_texts().values()
    ]
    layers = Layers(source, architecture, config, texts, every)
    rows = []
    for candidate in candidates:
        precision = PRECISIONS.get(candidate)
        if precision is not None and precision.layers is not None:
            tokens = sequences(calibration_text(None), tokenizer, bos, config.max_context)
            matrices: Mapping[str, Array] = layers.calibrated(precision.layers, tokens)
        elif candidate.endswith(_NEAREST):
            matrices = layers.nearest(STORAGES[candidate.removesuffix(_NEAREST)])
        else:
            values = layers.values(GgufSource(Path(candidate)))
            matrices = {name: values[name] for name in layers.matrices}
        kl = np.array(layers.divergences(matrices))
        error = kl.std() / np.sqrt(len(kl))
        rows.append((candidate, f"{kl.mean():.4f}", f"{error:.4f}", f"{np.median(kl):.4f}"))
    return Table(
        title=f"KL divergence from F32, {len(kl)} positions",
        headings=("layers", "mean", "standard error", "median"),
        rows=tuple(rows),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.layer_kl")
    parser.add_argument("weights", type=Path, help="F32 GGUF file")
    parser.add_argument("candidates", nargs="+", help="precision, STORAGE:nearest, or GGUF file")
    parser.add_argument("--every", type=int, default=4, help="compare each n-th position")
    parsed = parser.parse_args(arguments)
    print_table(measure(GgufSource(parsed.weights), parsed.candidates, parsed.every))


if __name__ == "__main__":
    main()
