"""Compile and run the LoRA gradient of a real model, each in a process of its own. Linux only."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import iree.runtime as rt
import numpy as np

from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fuse import optimized
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.lora import Lora, adapted, gradient_graph
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ArraysProgram
from hearthd.runtime.device import Device

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]

T = TypeVar("T")
FUNCTION = "gradient"


@dataclass(frozen=True, kw_only=True)
class LoraGradient:
    """The loss of one sequence and its gradients by adapters on all projections of a model.

    weights    a GGUF file
    precision  f32 or bf16: how the frozen matrices are stored
    """

    weights: Path
    precision: str
    rank: int
    tokens: int

    @cached_property
    def source(self) -> WeightSource:
        """The opened file."""
        return open_weights(self.weights)

    @cached_property
    def architecture(self) -> Architecture[Any]:
        """The architecture that the file names."""
        return ARCHITECTURES[str(self.source.metadata()["general.architecture"])]

    @cached_property
    def config(self) -> ModelConfig:
        """The configuration that the file has."""
        shapes = {name: self.source.shape(name) for name in self.source.names()}
        config: ModelConfig = self.architecture.from_gguf(
            self.source.metadata(), shapes, self.source.read
        )
        return config

    @cached_property
    def traced(self) -> tuple[Graph, dict[str, Tensor], ArraysProgram]:
        """The graph (tokens, targets, adapters) -> (loss, gradients), its adapters and weights."""
        model = self.architecture.model(self.config)
        parameters = model.parameters()
        lora = Lora(rank=self.rank, alpha=2.0 * self.rank)
        graph, adapters = adapted(loss_graph(model, self.tokens), parameters, lora)
        storage = PRECISIONS[self.precision].storage
        stored = optimized([graph], parameters, storage=lambda _: storage, kernels=False)
        gradient = gradient_graph(stored.graphs[0], adapters, FUNCTION)
        outputs = {FUNCTION: ("loss", *adapters)}
        program = ArraysProgram(graphs=(gradient,), outputs=outputs, weights=stored.weights)
        return gradient, adapters, program

    def inputs(self) -> list[Array]:
        """Random tokens and targets, and adapters of small random numbers."""
        rng = np.random.default_rng(0)
        ids = rng.integers(self.config.vocab_size, size=self.tokens + 1).astype(np.int32)
        adapters = (
            (0.02 * rng.normal(size=tensor.shape)).astype(np.float32)
            for tensor in self.traced[1].values()
        )
        return [ids[:-1], ids[1:], *adapters]


def compile_gradient(task: LoraGradient, folder: Path) -> dict[str, float]:
    """Compile into a folder and write the weights there; seconds of CPU and peak MB of both."""
    graph, _, program = task.traced
    located = locate(task.source, task.architecture, task.config, program)
    write_parameters(task.source, located, folder / PARAMETERS, lambda _: None)
    source = folder / "gradient.mlir"
    source.write_text(module_text(FUNCTION, [graph], PARAMETER_SCOPE), encoding="utf-8")
    with Compilation(source, folder / VMFB, find_target("host")) as compiler:
        compiler.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "nodes": len(graph.nodes),
        "compile_cpu_seconds": used.ru_utime + used.ru_stime,
        "compile_peak_mb": used.ru_maxrss / 1024,
    }


def run_gradient(task: LoraGradient, folder: Path, threads: int, steps: int) -> dict[str, float]:
    """Run some steps after a first one: medians of seconds, and this process's peak MB."""
    graph, inputs = task.traced[0], task.inputs()
    device = Device(folder, threads=threads)
    function = device.function(FUNCTION)
    arguments = [
        device.upload(array, "i32" if array.dtype == np.int32 else "f32") for array in inputs
    ]
    seconds, cpu_seconds = [], []
    for _ in range(steps + 1):
        began, cpu_began = time.perf_counter(), time.process_time()
        results = device.call(function, arguments, results=len(graph.outputs))
        outputs = [_array(results, i, tensor) for i, tensor in enumerate(graph.outputs)]
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    np.savez(folder / "results.npz", *outputs)
    return {
        "step_seconds": statistics.median(seconds[1:]),
        "step_cpu_seconds": statistics.median(cpu_seconds[1:]),
        "peak_mb": _peak_mb(),
        "loss": float(outputs[0]),
    }


def compare_with_numpy(task: LoraGradient, folder: Path) -> dict[str, float]:
    """The relative error of the loss, and the largest of a gradient relative to its maximum."""
    graph, _, program = task.traced
    weights = stored_parameters(program.parameters, folder / PARAMETERS)
    loss, *gradients = np.load(folder / "results.npz").values()
    expected_loss, *expected = evaluate(graph, task.inputs(), weights)
    return {
        "loss_error": float(abs(loss / expected_loss - 1)),
        "gradient_error": max(
            float(np.abs(actual - exact).max() / np.abs(exact).max())
            for actual, exact in zip(gradients, expected, strict=True)
        ),
    }


def in_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a new process: peaks of memory and numbers of threads are per process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


def _array(results: rt.VmVariantList, place: int, tensor: Tensor) -> Array:
    view = results.get_as_object(place, rt.HalBufferView).map()
    return np.array(view.asarray(tensor.shape, tensor.dtype.numpy))


def _peak_mb() -> float:
    """The largest resident memory of this process, with pages of mapped weights."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    )
    return int(status["VmHWM"].split()[0]) / 1024
