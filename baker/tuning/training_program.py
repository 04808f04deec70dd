"""The compiled program that tunes an adapter: losses, gradients and the update of the optimizer.

For each length of batch it has a function that adds gradients to sums and, for validation, one that
only computes the loss; and one function that updates the adapter. The model's matrices are frozen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import iree.runtime as rt
import numpy as np

from hearthd.baker.compiler.program_cache import ProgramCache, ProgramSource, compiling
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.memory_plan import footprint
from hearthd.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.storage import TRAINED
from hearthd.models.lora.training import sum_graph, update_graph
from hearthd.models.optimized import optimized
from hearthd.models.program import ArraysProgram
from hearthd.runtime.iree.device import Device, result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.progress import Progress
    from hearthd.baker.tuning.batches import Batch, Bucket
    from hearthd.baker.tuning.examples import Example
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.optimizers import Optimizer
    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.dsl.types import TensorType
    from hearthd.models.optimized import Optimized

    Array = NDArray[Any]

_UPDATE = "update"
# Python with its packages, the traced graphs, and IREE.
_PROCESS_BYTES = 250 << 20
# Products and their gradients read a weight in one layout each.
_LAYOUTS = 2
# A call holds more than a call of serving: more of its ops run beside each other.
_CALL_FACTOR = 1.5


@dataclass(frozen=True, kw_only=True)
class TrainingProgram:
    """The traced functions, and the types of what they hand from step to step, by name.

    adapters    A and B of each matrix
    state       of the optimizer
    recomputes  whether gradients compute values again instead of keeping them
    """

    program: ArraysProgram
    adapters: Mapping[str, TensorType]
    state: Mapping[str, TensorType]
    recomputes: bool

    @property
    def memory(self) -> int:
        """An estimate of the memory that running it takes, in bytes.

        Kernels read copies of the weights; those that are mapped are in memory until the first
        call ends, which holds less than later ones.
        """
        size = footprint(self.program.graphs, self.program.parameters)
        adapters = sum(
            array_type.nbytes for array_type in (*self.adapters.values(), *self.state.values())
        )
        call = max(size.calls.values())
        calls = max(size.laid_out + size.read + call, round(_CALL_FACTOR * call))
        return _PROCESS_BYTES + _LAYOUTS * size.laid_out + calls + 3 * adapters


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What the functions of a TrainingProgram are traced for.

    shapes     of the batches
    precision  of the frozen matrices, a key of TRAINED
    validated  whether there are losses without gradients
    recompute  as in `value_and_grad`
    """

    optimizer: Optimizer
    shapes: Sequence[Bucket]
    precision: str
    validated: bool
    recompute: bool = False


class TrainingTask(Protocol):
    """What a run trains on a frozen model, and how. `output` is the name of the result's file."""

    output: str

    def traced(self, options: TrainingOptions) -> TrainingProgram:
        """The functions of a program; raises DslError."""

    def first(self, program: TrainingProgram, seed: int) -> Mapping[str, Array]:
        """The tensors that are trained before the first step, f32, by name."""

    def read(
        self, trainer: Trainer, examples: Sequence[Example], shapes: Sequence[Bucket], folder: Path
    ) -> None:
        """Compute what `arrays` needs of all examples; files of it may be in a folder."""

    def arrays(self, examples: Sequence[Example], batch: Batch, *, total: int) -> tuple[Array, ...]:
        """The arrays of a batch, as the functions take them; `total` as in `batches.arrays`."""

    def write(self, folder: Path, trained: Mapping[str, Array]) -> None:
        """Write the files of the result to a folder."""


def with_frozen_weights(
    graphs: Sequence[Graph], parameters: Mapping[str, Tensor], options: TrainingOptions
) -> Optimized:
    """The graphs of a model, with its weights in the precision of the options and no kernels."""
    storage = TRAINED[options.precision]
    return optimized(
        graphs, parameters, storage=lambda _: storage, kernels=False, recurrent_kernels=False
    )


def training_program(
    losses: Sequence[tuple[Graph, Mapping[str, Tensor]]],
    others: Sequence[Graph],
    weights: tuple[Weight, ...],
    options: TrainingOptions,
) -> TrainingProgram:
    """The update, the gradients of each loss, and the other functions.

    losses   the loss for each shape, with the tensors that are trained, by name
    weights  of all graphs
    """
    trained = losses[0][1]
    graphs = [update_graph(trained, options.optimizer, _UPDATE)]
    for shape, (loss, tensors) in zip(options.shapes, losses, strict=True):
        name = f"gradient_{shape.name}"
        graphs.append(sum_graph(loss, tensors, name, recompute=options.recompute))
    graphs += others
    types = {name: tensor.type for name, tensor in trained.items()}
    # The results are named "0", "1" and so on.
    outputs = {graph.name: tuple(map(str, range(len(graph.outputs)))) for graph in graphs}
    return TrainingProgram(
        program=ArraysProgram(graphs=tuple(graphs), outputs=outputs, weights=weights),
        adapters=types,
        state=options.optimizer.state(types),
        recomputes=options.recompute,
    )


def compile_program(
    traced: TrainingProgram,
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    folder: Path,
    progress: Progress,
) -> None:
    """Compile for this machine into a folder, and write the weights there.

    Raises CompileError, a WeightsError or OSError.
    """
    text = folder / "training.mlir"
    with progress.stage("lower to StableHLO"):
        module = module_text("training", traced.program.graphs, PARAMETER_SCOPE).encode()
        text.write_bytes(module)
    program = ProgramSource(text=module, kernels=(), chains={}, target=find_target("host"))
    with compiling(program, text, folder / VMFB, ProgramCache.at_home()) as compilation:
        located = locate(source, architecture, config, traced.program)
        with progress.stage("write the weights"):
            write_parameters(source, located, folder / PARAMETERS, lambda _: None)
        with progress.stage("compile the training step"):
            compilation.wait()
    text.unlink()


class Trainer:
    """A compiled program; the adapter and the optimizer's state stay on the device."""

    def __init__(self, traced: TrainingProgram, folder: Path, begin: Mapping[str, Array]) -> None:
        """Load the program of a folder; `begin` has the adapter and, unless zeros, the state."""
        self._traced = traced
        self._device = Device(folder, threads=None)
        self._functions = {
            graph.name: self._device.function(graph.name) for graph in traced.program.graphs
        }
        types = {**traced.adapters, **traced.state}
        self._adapters = [self._begin(name, types[name], begin) for name in traced.adapters]
        self._state = [self._begin(name, types[name], begin) for name in traced.state]
        self._zeros = [
            self._begin(name, array_type, {}) for name, array_type in traced.adapters.items()
        ]
        self._sums = self._zeros

    def add_gradients(self, shape: Bucket, batch: Sequence[Array]) -> float:
        """Add the gradients of a batch to the sums of this step; returns its weighted loss.

        With dropout, the last array of the batch is its seed, i32 ().
        """
        arguments = [*self._adapters, *self._sums, *map(self._upload, batch)]
        self._sums, loss = self._call(f"gradient_{shape.name}", arguments, len(self._sums))
        return loss

    def loss(self, shape: Bucket, batch: Sequence[Array]) -> float:
        """The weighted loss of a batch."""
        # The inputs of an adapted graph: the batch, then the adapters.
        arguments = [*map(self._upload, batch), *self._adapters]
        return self._call(f"loss_{shape.name}", arguments, 0)[1]

    def states(self, shape: Bucket, tokens: Array, hidden: int) -> Array:
        """The model's hidden states of a batch's tokens, f32 (sequences, length, hidden)."""
        function = self._functions[f"states_{shape.name}"]
        results = self._device.call(function, [self._upload(tokens)], results=1)
        return result(results, 0, (shape.sequences, shape.length, hidden))

    def update(self) -> None:
        """Update the adapter by the sums of gradients, which are zeros afterwards."""
        arguments = [*self._adapters, *self._state, *self._sums]
        count = len(self._adapters) + len(self._state)
        results = self._device.call(self._functions[_UPDATE], arguments, results=count)
        new = [results.get_as_object(i, rt.HalBufferView) for i in range(count)]
        self._adapters, self._state = new[: len(self._adapters)], new[len(self._adapters) :]
        self._sums = self._zeros

    def adapters(self) -> dict[str, Array]:
        """Copies of the adapter's matrices, by name; raises DivergedError unless all are finite."""
        arrays = self._arrays(self._traced.adapters, self._adapters)
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise DivergedError("the adapter has values that are not finite; lower --learning-rate")
        return arrays

    def state(self) -> dict[str, Array]:
        """Copies of the optimizer's state, by name."""
        return self._arrays(self._traced.state, self._state)

    def _call(self, name: str, arguments: list[Any], kept: int) -> tuple[list[Any], float]:
        """The results of a function that the device keeps, and the last one, a loss."""
        results = self._device.call(self._functions[name], arguments, results=kept + 1)
        views = [results.get_as_object(i, rt.HalBufferView) for i in range(kept)]
        loss = float(result(results, kept, ()))
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss}; lower --learning-rate")
        return views, loss

    def _begin(self, name: str, type_: TensorType, begin: Mapping[str, Array]) -> Any:
        if name in begin:
            return self._upload(begin[name])
        return self._upload(np.zeros(type_.shape, type_.dtype.numpy))

    def _upload(self, array: Array) -> Any:
        dtype = {"float32": "f32", "int32": "i32"}[array.dtype.name]
        return self._device.upload(np.array(array, order="C"), dtype)

    @staticmethod
    def _arrays(types: Mapping[str, TensorType], views: Sequence[Any]) -> dict[str, Array]:
        return {
            name: np.array(view.map().asarray(type_.shape, type_.dtype.numpy))
            for (name, type_), view in zip(types.items(), views, strict=True)
        }


class DivergedError(Exception):
    """The loss or an adapter is not finite any more."""
