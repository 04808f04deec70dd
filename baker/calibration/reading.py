"""Read texts with a model in NumPy, op by op, with other matrices in place of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from hearthd.baker.parameters.parameter_writer import parameter_blocks
from hearthd.models.decoder.entry_points import read
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]

# Bytes of a parameter from which it is read into a file: a table, whose rows are mostly not read.
_LARGE = 1 << 28


def hidden_states(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    tokens: NDArray[np.int32],
    folder: Path,
    matrix: Callable[[str, Tensor, Array, Array], Array],
) -> NDArray[np.float32]:
    """The normalized hidden states f32 (S * T, E) of texts, token ids i32 (S, T).

    matrix  (parameter, inputs, their values x (..., K), weight (N, K)) -> the matrix that x is
            multiplied by, for each product with a parameter, in their order
    folder  a temporary one

    Raises a WeightsError, and what `matrix` raises.
    """
    graph = _graph(architecture.model(config), *tokens.shape)
    names = {id(tensor): name for name, tensor in graph.parameters.items()}

    def replace(node: Tensor, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        if not isinstance(node.origin, Apply) or node.origin.op is not f.times_weight.op:
            return arrays
        inputs, weight = node.inputs
        if id(weight) not in names:
            return arrays
        return arrays[0], matrix(names[id(weight)], inputs, *arrays)

    weights = FileWeights(source, architecture, config, graph.parameters, folder)
    (states,) = evaluate(graph, list(_arguments(graph, tokens)), weights, replace=replace)
    return states


class FileWeights(Mapping[str, NDArray[np.float32]]):
    """A model's parameters by name, each read when it is needed; large tables only once."""

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
        self._folder = folder
        self._tables: dict[str, NDArray[np.float32]] = {}
        names, gguf = source.names(), source.format == "gguf"
        self._tensors = {
            name: architecture.tensors.parts(config, name, names, gguf=gguf) for name in parameters
        }

    @override
    def __getitem__(self, name: str) -> NDArray[np.float32]:
        if name in self._tables:
            return self._tables[name]
        shape = self._parameters[name].shape
        if 4 * math.prod(shape) < _LARGE:
            return self._read(name, np.empty(shape, np.float32))
        path = self._folder / name
        values = self._read(name, np.memmap(path, np.float32, "w+", shape=shape))
        path.unlink()  # the file goes when nothing maps it any more
        if not name.startswith("layers."):
            self._tables[name] = values
        return values

    def _read(self, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """A parameter in an array of its shape."""
        rest = values.reshape(-1)
        for tensor in self._tensors[name]:
            for block in parameter_blocks(self._source, tensor, values.shape[-1]):
                rest[: block.size] = block.reshape(-1)
                rest = rest[block.size :]
        return values

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    @override
    def __len__(self) -> int:
        return len(self._parameters)


def logits(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    states: NDArray[np.float32],
    folder: Path,
) -> NDArray[np.float32]:
    """The logits f32 (N, V) of normalized hidden states (N, E), with the head as it is."""
    model = architecture.model(config)
    inputs = {"states": TensorType(states.shape, DType.F32)}
    graph = trace("logits", lambda x: (model.logits(x),), inputs, parameters=model.parameters())
    weights = FileWeights(source, architecture, config, graph.parameters, folder)
    (result,) = evaluate(graph, [states], weights)
    return result


def _graph(model: Decoder, count: int, length: int) -> Graph:
    """Read `count` sequences of `length` tokens: the normalized hidden states (N, E)."""
    layers = [
        [(2 + state.behind(length), state.width) for state in model.states(layer)]
        or [(length, width) for width in [model.cache_width(layer)] * 2 if width]
        for layer in range(model.config.cached_layers)
    ]
    inputs = {"tokens": TensorType((count * length,), DType.I32)}
    inputs |= {f"start.{i}": TensorType((1,), DType.I32) for i in range(count)}
    for layer, shapes in enumerate(layers):
        inputs |= {
            f"{layer}.{i}.{part}": TensorType(shape, DType.F32)
            for i in range(count)
            for part, shape in enumerate(shapes)
        }

    def run(tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        caches = iter(rest[count:])
        buffers = [[tuple(islice(caches, len(shapes))) for _ in range(count)] for shapes in layers]
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
