"""Round the layers of a model, each by the inputs that the rounded layers before it give it.

The model reads all sequences of the calibration text at once, op by op, in NumPy. Where a matrix
is about to be multiplied, its inputs are there: it is rounded for them, and multiplied as rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hearthd.baker.calibration.compensated_rounding import compensated
from hearthd.baker.calibration.reading import hidden_states
from hearthd.baker.parameters.quantization import encoded_integers
from hearthd.models.dsl.matrix_format import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.parameters.parameter_writer import StoredRows
    from hearthd.baker.weights.source import IntegerBlock, WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.storage import Storage

    Array = NDArray[Any]
    Floats = NDArray[np.float32]


@dataclass(frozen=True)
class CalibratedLayers:
    """Matrices that were rounded, by the name of their parameter.

    arrays       of each one's storage, mapped from files
    divergences  what the rounding of each is expected to add to the KL divergence of the
                 predictions, times an unknown factor that is the same for all
    """

    arrays: dict[str, StoredRows] = field(default_factory=dict)
    divergences: dict[str, float] = field(default_factory=dict)


def calibrated_layers(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    storages: Mapping[str, Storage],
    tokens: NDArray[np.int32],
    weights: Mapping[str, Floats],
    folder: Path,
    advance: Callable[[int], None],
) -> CalibratedLayers:
    """Round the matrices of `storages`, parameters by name, while reading tokens (S, T).

    `weights` are the tokens' for each matrix, f32 (S * T,), by `token_weights`, which also
    checks that the matrices are finite. The arrays are in files in `folder`; `advance` is told the
    bytes of each matrix that is done. A matrix that no token reaches is not among them. Raises a
    WeightsError.
    """
    pass_ = _Pass(storages, weights, folder, advance)
    with threadpool_limits(1):  # the last bits of a sum depend on the number of threads
        hidden_states(source, architecture, config, tokens, folder, pass_.rounded)
    return pass_.done


@dataclass(frozen=True)
class _Pass:
    """One reading of the text, and what was rounded."""

    storages: Mapping[str, Storage]
    weights: Mapping[str, Floats]
    folder: Path
    advance: Callable[[int], None]
    done: CalibratedLayers = field(default_factory=CalibratedLayers)

    def rounded(self, name: str, _: Tensor, x: Array, weight: Array) -> Array:
        """The matrix of a parameter as rounded, if it is one to round."""
        if name not in self.storages:
            return weight
        storage = self.storages[name]
        assert storage.format is not None, storage.name
        weights = self.weights[name]
        weighted = hessian(x.reshape(-1, x.shape[-1]), weights)
        block = compensated(weight, weighted, storage.format.bits)
        real = _real(block, storage.format.zero)
        self.done.arrays[name] = self._kept(name, encoded_integers(storage, block))
        self.done.divergences[name] = divergence(weight - real, weighted, weights)
        self.advance(weight.nbytes)
        return real

    def _kept(self, name: str, arrays: StoredRows) -> StoredRows:
        """Arrays in files, since a large model's do not fit into memory."""
        paths = [self.folder / f"{name}.{i}.npy" for i in range(len(arrays))]
        for path, array in zip(paths, arrays, strict=True):
            np.save(path, array)
        return tuple(np.load(path, mmap_mode="r") for path in paths)


def hessian(inputs: Floats, weights: Floats) -> NDArray[np.float64]:
    """The mean of w x x^T over tokens with inputs x, f32 (N, K), and weights w, f32 (N,): (K, K).

    The weights count in proportion to their mean.
    """
    mean = weights.mean(dtype=np.float64) or 1.0
    rows = inputs * np.sqrt(weights / mean).astype(np.float32)[:, np.newaxis]
    return (rows.T @ rows).astype(np.float64) / len(rows)


def divergence(change: Floats, hessian: NDArray[np.float64], weights: Floats) -> float:
    """What changing a matrix by `change`, f32 (N, K), is expected to add to the KL divergence.

    For products that change in random directions, it is half the mean of |g|^2 |change x|^2 / N
    over tokens with inputs x and gradients g. One of the two |g| is replaced by its mean, since a
    few tokens have most of the sum of squares. `weights` f32 (T,) are |g|; `hessian` (K, K) is the
    mean of |g| x x^T divided by the mean of |g|.
    """
    products = np.vdot(change @ hessian.astype(np.float32), change)
    return float(products) / len(change) * float(np.mean(weights)) ** 2 / 2


def _real(block: IntegerBlock, zero: int) -> NDArray[np.float32]:
    """The weights (N, K) that integers stand for."""
    scale = np.repeat(block.scale, GROUP, axis=1)
    return (block.integers.astype(np.float32) - np.float32(zero)) * scale
