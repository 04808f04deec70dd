"""Train with one compiled function, `train_step`: loss, gradients and update.

The scripts beside this module provide models and batches, and save the trained weights.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import iree.runtime as rt
import numpy as np
from numpy.typing import NDArray

from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.parameters.irpa import ArchiveWriter
from hearthd.baker.presentation.plots import svg
from hearthd.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.value_and_grad import value_and_grad
from hearthd.runtime.iree.device import Device, result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from hearthd.models.dsl.optimizers import Optimizer
    from hearthd.models.dsl.types import TensorType

Array: TypeAlias = NDArray[Any]

# NumPy also computes the first losses. The relative difference is at most TOLERANCE: f32 rounds to
# 6e-8, the order of sums differs, and every update carries the difference to the next step.
COMPARED = 30
TOLERANCE = 1e-5


class WrongLoss(Exception):
    """A loss of the compiled program differs from NumPy's by more than TOLERANCE, relatively."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model to train.

    weights    the parameters of the model, by name
    batch      the types of the inputs of a step
    loss       a function from tensors of these types to a scalar, which reads the weights
    optimizer  the rule that updates the weights
    """

    weights: Mapping[str, Tensor]
    batch: Mapping[str, TensorType]
    loss: Callable[..., Tensor]
    optimizer: Optimizer


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of a training: the loss before each step, NumPy's first losses, the weights."""

    losses: list[float]
    numpy_losses: list[float]
    weights: dict[str, Array]


def train_step(task: Task) -> Graph:
    """The graph (weights, state, batch) -> (next weights, next state, loss)."""
    weights = dict(task.weights)
    types = {name: weight.type for name, weight in weights.items()}
    state, batch = (
        {name: Tensor(type_, Input(name)) for name, type_ in group.items()}
        for group in (task.optimizer.state(types), task.batch)
    )
    loss, gradient_list = value_and_grad(task.loss, *batch.values(), by=list(weights.values()))
    gradients = dict(zip(weights, gradient_list, strict=True))
    new, after = task.optimizer.update(weights, gradients, state)
    inputs = (*weights.values(), *state.values(), *batch.values())
    return make_graph("train_step", inputs, (*new.values(), *after.values(), loss), {}, {})


def train(
    task: Task,
    weights: Mapping[str, Array],
    batch_of: Callable[[int], Sequence[Array]],
    *,
    steps: int,
    say: Callable[[str], None],
) -> Trained:
    """Train from these weights, on the batch of each step; `say` prints the progress.

    Raises WrongLoss, and CompileError if the step cannot be compiled.
    """
    graph = train_step(task)
    count = sum(array.size for array in weights.values())
    say(f"compiling train_step: {len(graph.nodes)} ops, {count} weights")
    begin = [
        weights[name] if name in weights else np.zeros(type_.shape, type_.dtype.numpy)
        for name, type_ in _kept(task).items()
    ]
    in_numpy = _numpy_losses(graph, begin, [batch_of(step) for step in range(min(COMPARED, steps))])
    with tempfile.TemporaryDirectory() as folder:
        compiled = CompiledStep(graph, begin, Path(folder))
    losses: list[float] = []
    for step in range(steps):
        losses.append(compiled(batch_of(step)))
        # `not <=` instead of `>`: a NaN is an error, too.
        if step < len(in_numpy) and not abs(losses[step] / in_numpy[step] - 1) <= TOLERANCE:
            raise WrongLoss(
                f"step {step}: the loss is {losses[step]}, NumPy computes {in_numpy[step]}"
            )
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            say(f"step {step:5}  loss {losses[step]:.4f}")
    largest = max(abs(a / b - 1) for a, b in zip(losses, in_numpy, strict=False))
    say(f"the first {len(in_numpy)} losses equal NumPy's within {largest:.1e}")
    trained = dict(zip(task.weights, compiled.kept(), strict=False))
    return Trained(losses=losses, numpy_losses=in_numpy, weights=trained)


def _kept(task: Task) -> dict[str, TensorType]:
    """The types of the values kept between steps: weights, then the state of the optimizer."""
    types = {name: weight.type for name, weight in task.weights.items()}
    return {**types, **task.optimizer.state(types)}


def _numpy_losses(graph: Graph, kept: list[Array], batches: list[Sequence[Array]]) -> list[float]:
    """The losses of the first steps, computed by NumPy from the same graph."""
    losses = []
    for batch in batches:
        *kept, loss = evaluate(graph, [*kept, *batch], {})
        losses.append(float(loss))
    return losses


class CompiledStep:
    """`train_step` on this machine; weights and state stay on the device between steps."""

    def __init__(self, graph: Graph, begin: Sequence[Array], folder: Path) -> None:
        """Compile in a folder, which may be deleted afterwards; raises CompileError."""
        text = folder / "step.mlir"
        text.write_text(module_text("training", [graph], PARAMETER_SCOPE), encoding="utf-8")
        with Compilation(text, folder / VMFB, find_target("host")) as compiler:
            compiler.wait()
        with ArchiveWriter(folder / PARAMETERS, {}):
            pass  # weights are arguments, not parameters
        self._device = Device(folder, threads=None)
        self._function = self._device.function(graph.name)
        self._graph = graph
        self._kept = [self._upload(array) for array in begin]

    def __call__(self, batch: Sequence[Array]) -> float:
        """Run one step; returns the loss before it."""
        arguments = [*self._kept, *map(self._upload, batch)]
        count = len(self._kept)
        results = self._device.call(self._function, arguments, results=count + 1)
        self._kept = [results.get_as_object(i, rt.HalBufferView) for i in range(count)]
        return float(result(results, count, ()))

    def kept(self) -> list[Array]:
        """The current weights and state."""
        return [
            np.array(view.map().asarray(view.shape, tensor.dtype.numpy))
            for view, tensor in zip(self._kept, self._graph.inputs, strict=False)
        ]

    def _upload(self, array: Array) -> Any:
        dtype = {"float32": "f32", "int32": "i32"}[array.dtype.name]
        return self._device.upload(np.array(array, order="C"), dtype)


def draw_losses(trained: Trained, path: Path, title: str) -> None:
    """Draw the loss of every step as an SVG file, and NumPy's losses as dots on it."""

    def draw(axes: Axes) -> None:
        axes.set(xlabel="step", ylabel="loss", yscale="log")
        axes.plot(trained.losses, label="compiled train_step")
        axes.plot(trained.numpy_losses, "o", label="NumPy")

    path.write_text(svg(title, draw), encoding="utf-8")
