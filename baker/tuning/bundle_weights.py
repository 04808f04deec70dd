"""The weights of a bundle, dequantized, with the names that they have in a Hugging Face folder.

An adapter that is tuned on them is tuned on what the bundle computes with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.reference.numpy_runtime import (
    answering_parameters,
    stored_parameters,
    traced,
)
from hearthd.baker.weights.source import BLOCK_BYTES, ROW_GROUP, BadFile, WeightSource, stamp
from hearthd.bundle import MANIFEST, PARAMETERS, LanguageManifest, read_manifest_of
from hearthd.bundle.parsing.head_rows import side_by_side
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.matrix_values import dequantized
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.dsl.storage import Storage
    from hearthd.models.program import StoredTensor

    Array = NDArray[Any]


class BundleWeights(WeightSource):
    """The weights of a bundle of a language model, which `manifest` describes.

    Raises a BundleError, ConfigError, DslError or BadArchive for a bundle of another program.
    """

    format = "safetensors"  # of the names

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.manifest = read_manifest_of(folder, LanguageManifest)
        program = traced(self.manifest)
        self._arrays = stored_parameters(answering_parameters(program), folder / PARAMETERS)
        self._stamps = {path: stamp(path) for path in self.files()}
        self.architecture: Architecture[Any] = ARCHITECTURES[self.manifest.architecture]
        self.config: ModelConfig = self.architecture.from_manifest(self.manifest.config)
        tensors = self.architecture.tensors
        self._weights: dict[str, tuple[Weight, str, StoredTensor]] = {}
        for weight in program.weights:
            for parameter in weight.sources:
                stored = tensors.parts(self.config, parameter, (), gguf=False)[0]
                self._weights[stored.name] = (weight, parameter, stored)

    @property
    @override
    def folder(self) -> Path:
        """The bundle, which also has the tokenizer."""
        return self._folder

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(self._weights)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        weight, parameter, _ = self._weights[name]
        return weight.sources[parameter]

    @override
    def dtype(self, name: str) -> str:
        """How the bundle stores a tensor."""
        return self._weights[name][0].storage.name

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        if width := self._weights[name][2].interleaved:
            yield side_by_side(np.concatenate([*self._blocks(name)]), width)
        else:
            yield from self._blocks(name)

    def _blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The blocks of a tensor, with the rows in the order of the parameter."""
        weight, parameter, tensor = self._weights[name]
        stored, rows = (
            [self._arrays[array_name] for array_name in weight.parameters],
            weight.rows()[parameter],
        )
        if stored[0].ndim < 2:
            yield stored[0] - np.float32(tensor.offset)
            return
        # Arrays of integers have sixteen rows in a block.
        group = 1 if stored[0].ndim == 2 else ROW_GROUP
        columns = weight.sources[parameter][-1]
        step = max(1, BLOCK_BYTES // (4 * columns * ROW_GROUP)) * ROW_GROUP
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            first, last = start // group, -(-stop // group)
            values = stored_values(weight.storage, [array[first:last] for array in stored])
            yield values[start - first * group : stop - first * group] - np.float32(tensor.offset)

    @override
    def files(self) -> tuple[Path, ...]:
        return (self._folder / MANIFEST, self._folder / PARAMETERS)

    @override
    def require_unchanged(self) -> None:
        for path, before in self._stamps.items():
            if stamp(path) != before:
                raise BadFile(f"{path} has changed since it was opened")

    @override
    def metadata(self) -> Mapping[str, object]:
        """The configuration in the manifest."""
        return self.manifest.config


def stored_values(storage: Storage, arrays: Sequence[Array]) -> Array:
    """The real weights f32 (N, K) of arrays that a bundle stores."""
    matrix_format = storage.format
    if matrix_format is None:
        return arrays[0].astype("f4")
    types = {f"x{i}": TensorType(x.shape, DType.of(x.dtype)) for i, x in enumerate(arrays)}
    graph = trace("dequantized", lambda *x: (dequantized(x, matrix_format),), types)
    values: Array = evaluate(graph, arrays, {})[0]
    return values
