"""Round the layers of a model, each by the inputs that the rounded layers before it give it.

The model reads all sequences of the calibration text at once, op by op, in NumPy. Where a matrix
is about to be multiplied, its inputs are there: it is rounded for them, and multiplied as rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from baker.calibration.compensated_rounding import compensated
from baker.parameters.parameter_writer import parameter_blocks
from baker.parameters.quantization import NotFiniteError, encoded_integers, require_finite
from models.decoder.entry_points import read
from models.dsl import functions as f
from models.dsl.evaluate import evaluate
from models.dsl.graph import Apply
from models.dsl.packing import GROUP
from models.dsl.trace import trace
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from baker.parameters.parameter_writer import StoredRows
    from baker.weights.source import IntegerBlock, WeightSource
    from models.config import ModelConfig
    from models.decoder.architecture import Architecture
    from models.decoder.entry_points import Decoder
    from models.dsl.graph import Graph, Tensor
    from models.dsl.storage import Storage

    Array = NDArray[Any]

# Bytes of a parameter from which it is read into a file: a table, of which few rows are read.
_LARGE = 1 << 28


def calibrated_layers(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    storages: Mapping[str, Storage],
    tokens: NDArray[np.int32],
    folder: Path,
    advance: Callable[[int], None],
) -> dict[str, StoredRows]:
    """Round the matrices of `storages`, parameters by name, while reading tokens (S, T).

    Returns the arrays of each, mapped from files in `folder`; `advance` is told the bytes of each
    matrix that is done. A matrix that no token reaches is not among them. Raises a WeightsError or
    NotFiniteError.
    """
    model = architecture.model(config)
    graph = _graph(model, *tokens.shape)
    weights = _FileWeights(source, architecture, config, graph.parameters, folder)
    names = {id(tensor): name for name, tensor in graph.parameters.items()}
    pass_ = _Pass(storages, names, folder, advance)
    with threadpool_limits(1):  # the last bits of a sum depend on the number of threads
        evaluate(graph, list(_arguments(graph, tokens)), weights, replace=pass_.replace)
    return pass_.done


@dataclass(frozen=True)
class _Pass:
    """One reading of the text: what was rounded, and the Hessian of the latest inputs."""

    storages: Mapping[str, Storage]
    names: Mapping[int, str]
    folder: Path
    advance: Callable[[int], None]
    done: dict[str, StoredRows] = field(default_factory=dict)
    _hessians: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def replace(self, node: Tensor, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """The arrays of a node, with its matrix as rounded, if it is one to round."""
        if not isinstance(node.origin, Apply) or node.origin.op is not f.times_weight.op:
            return arrays
        inputs, matrix = node.inputs
        name = self.names.get(id(matrix), "")
        if name not in self.storages:
            return arrays
        x, weight = arrays
        try:
            require_finite(weight, weight)
        except NotFiniteError as error:
            raise NotFiniteError(f"parameter {name}: {error}") from None
        storage = self.storages[name]
        assert storage.form is not None, storage.name
        block = compensated(weight, self._hessian(inputs, x), storage.form.bits)
        self.done[name] = self._kept(name, encoded_integers(storage, block))
        self.advance(weight.nbytes)
        return x, _real(block, storage.form.zero)

    def _hessian(self, inputs: Tensor, x: Array) -> NDArray[np.float64]:
        """The mean of x x^T over all tokens; products of the same inputs share it."""
        if id(inputs) not in self._hessians:
            self._hessians.clear()
            rows = x.reshape(-1, x.shape[-1])
            self._hessians[id(inputs)] = (rows.T @ rows).astype(np.float64) / len(rows)
        return self._hessians[id(inputs)]

    def _kept(self, name: str, arrays: StoredRows) -> StoredRows:
        """Arrays in files, since those of a large model do not fit into memory."""
        paths = [self.folder / f"{name}.{i}.npy" for i in range(len(arrays))]
        for path, array in zip(paths, arrays, strict=True):
            np.save(path, array)
        return tuple(np.load(path, mmap_mode="r") for path in paths)


def _real(block: IntegerBlock, zero: int) -> NDArray[np.float32]:
    """The weights (N, K) that integers stand for."""
    scale = np.repeat(block.scale, GROUP, axis=1)
    return (block.integers.astype(np.float32) - np.float32(zero)) * scale


class _FileWeights(Mapping[str, NDArray[np.float32]]):
    """A model's parameters by name, each read when it is needed."""

    def __init__(
        self,
        source: WeightSource,
        architecture: Architecture[Any],
        config: ModelConfig,
        parameters: Mapping[str, Tensor],
        folder: Path,
    ) -> None:
        self._source = source
        self._parameters = parameters
        self._table = folder / "table"
        names, gguf = source.names(), source.format == "gguf"
        self._tensors = {
            name: architecture.tensors.parts(config, name, names, gguf=gguf) for name in parameters
        }

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        shape = self._parameters[name].shape
        if 4 * math.prod(shape) < _LARGE:
            values = np.empty(shape, np.float32)
        else:
            values = np.memmap(self._table, np.float32, "w+", shape=shape)
        rest = values.reshape(-1)
        for tensor in self._tensors[name]:
            for block in parameter_blocks(self._source, tensor):
                rest[: block.size] = block.reshape(-1)
                rest = rest[block.size :]
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def _graph(model: Decoder, count: int, length: int) -> Graph:
    """Read `count` sequences of `length` tokens: the normalised hidden states (N, E)."""
    layers = range(model.config.layers)
    inputs = {"tokens": TensorType((count * length,), DType.I32)}
    inputs |= {f"start.{i}": TensorType((1,), DType.I32) for i in range(count)}
    for layer in layers:
        cache = TensorType((length, model.cache_width(layer)), DType.F32)
        inputs |= {f"{layer}.{i}.{part}": cache for i in range(count) for part in ("key", "value")}

    def run(tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        pairs = iter(zip(rest[count::2], rest[count + 1 :: 2], strict=True))
        buffers = [[next(pairs) for _ in range(count)] for _ in layers]
        return (read(model, tokens, list(rest[:count]), buffers, length)[0],)

    return trace("calibration", run, inputs, parameters=model.parameters())


def _arguments(graph: Graph, tokens: NDArray[np.int32]) -> Iterator[Array]:
    """The tokens, and zeros for everything else: texts start at position 0 of empty caches."""
    yield tokens.reshape(-1)
    zeros: dict[TensorType, Array] = {}
    for tensor in graph.inputs[1:]:
        if tensor.type not in zeros:
            zeros[tensor.type] = np.zeros(tensor.shape, tensor.dtype.numpy)
        yield zeros[tensor.type]
