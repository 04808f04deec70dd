"""The stage of a bake that rounds layers by a calibration text."""

from __future__ import annotations

import math
import shutil
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hearthd.baker.calibration.calibrated_layers import CalibratedLayers, calibrated_layers
from hearthd.baker.calibration.token_weights import token_weights
from hearthd.baker.parameters.parameter_writer import keeps_integers
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.parameters.parameter_writer import Located
    from hearthd.baker.progress import Progress
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.storage import Storage

# The storages whose integers are chosen for a calibration text.
ROUNDED = tuple(
    precision.layers for precision in PRECISIONS.values() if precision.layers is not None
)


def layers_to_round(source: WeightSource, located: Sequence[Located]) -> dict[str, Storage]:
    """The matrices that are rounded by a text, by name; not those whose integers a file has."""
    return {
        name: entry.weight.storage
        for entry in located
        if entry.weight.storage in ROUNDED
        for name, tensors in zip(entry.weight.sources, entry.tensors, strict=True)
        if not any(keeps_integers(source, tensor, entry.weight.storage) for tensor in tensors)
    }


class Calibration:
    """Rounds the layers of a model by the sequences i32 (S, T) that `read` returns.

    They are read when they are first needed, and the weights of their tokens are computed once. The
    arrays of the last rounding are in `folder`, a temporary one.
    """

    def __init__(
        self,
        source: WeightSource,
        architecture: Architecture[Any],
        config: ModelConfig,
        read: Callable[[], NDArray[np.int32]],
        folder: Path,
        progress: Progress,
    ) -> None:
        self._model = (source, architecture, config)
        self._read = read
        self._folder = folder
        self._progress = progress
        self._weights: dict[str, NDArray[np.float32]] = {}
        self._storages: dict[str, Storage] = {}
        self._last = CalibratedLayers()

    def rounded(self, storages: Mapping[str, Storage]) -> CalibratedLayers:
        """These matrices, rounded. Deletes the matrices of an earlier call.

        Raises a WeightsError, NotFiniteError, or what `read` raises.
        """
        if storages != self._storages:
            if not storages.keys() <= self._weights.keys():
                self._weigh(storages)
            self._last = self._round(storages)
            self._storages = dict(storages)
        return self._last

    def _weigh(self, storages: Mapping[str, Storage]) -> None:
        """Compute how much the tokens count for these matrices."""
        stage = "weigh the tokens of the calibration text"
        with self._progress.stage(stage, len(self._tokens)) as advance:
            self._weights = token_weights(
                *self._model, storages, self._tokens, self._folder, advance
            )

    def _round(self, storages: Mapping[str, Storage]) -> CalibratedLayers:
        arrays = self._folder / "arrays"
        if arrays.exists():
            shutil.rmtree(arrays)
        arrays.mkdir()
        _, architecture, config = self._model
        shapes = architecture.model(config).parameters()
        size = sum(4 * math.prod(shapes[name].shape) for name in storages)
        with self._progress.stage("round the layers by the calibration text", size) as advance:
            return calibrated_layers(
                *self._model, storages, self._tokens, self._weights, arrays, advance
            )

    @cached_property
    def _tokens(self) -> NDArray[np.int32]:
        return self._read()
