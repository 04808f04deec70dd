"""The stage of a bake that rounds layers by a calibration text."""

from __future__ import annotations

import math
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baker.calibration.calibrated_layers import calibrated_layers
from baker.calibration.token_weights import token_weights
from baker.parameters.parameter_writer import keeps_integers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from baker.parameters.parameter_writer import Located, StoredRows
    from baker.progress import Progress
    from baker.weights.source import WeightSource
    from models.config import ModelConfig
    from models.decoder.architecture import Architecture
    from models.dsl.storage import Storage


def layers_to_round(
    source: WeightSource, located: Sequence[Located], storage: Storage
) -> dict[str, tuple[int, ...]]:
    """The shapes of matrices that are stored so, by name; not those whose integers a file has."""
    return {
        name: shape
        for one in located
        if one.weight.storage is storage
        for (name, shape), tensors in zip(one.weight.sources.items(), one.tensors, strict=True)
        if not any(keeps_integers(source, tensor, storage) for tensor in tensors)
    }


@contextmanager
def rounded_layers(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    storages: Mapping[str, Storage],
    tokens: NDArray[np.int32],
    progress: Progress,
) -> Iterator[Mapping[str, StoredRows]]:
    """The arrays of matrices, rounded while the model reads tokens i32 (S, T).

    They are in temporary files while the block runs. Raises a WeightsError or NotFiniteError.
    """
    if not storages:
        yield {}
        return
    shapes = architecture.model(config).parameters()
    size = sum(4 * math.prod(shapes[name].shape) for name in storages)
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        model, path = (source, architecture, config), Path(folder)
        with progress.stage("weigh the tokens of the calibration text", len(tokens)) as advance:
            weights = token_weights(*model, storages, tokens, path, advance)
        with progress.stage("round the layers by the calibration text", size) as advance:
            rounded = calibrated_layers(*model, storages, tokens, weights, path, advance)
        yield rounded
