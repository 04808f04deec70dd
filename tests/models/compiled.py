"""Compile graphs with the baker's own flags for this machine, and call them by name.

A test module makes its fixture with `compiled_fixture`. Its graphs are one module for the
compiler, which is fastest; when a run has selected some of its tests (`-k`, a node id), each graph
is a module, so that one test takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import iree.runtime as rt
import ml_dtypes
import numpy as np
import pytest

from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.targets import find_target
from hearthd.bundle import PARAMETER_SCOPE
from hearthd.models.dsl.mlir.stablehlo import chains, kernels, module_text
from hearthd.runtime.iree.loaded_program import LoadedProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph

    Array = NDArray[Any]

_ELEMENT_TYPES = {
    np.dtype(np.bool_): rt.HalElementType.SINT_8,  # as the writer passes them
    np.dtype(np.int8): rt.HalElementType.SINT_8,
    np.dtype(np.int32): rt.HalElementType.SINT_32,
    np.dtype(np.float16): rt.HalElementType.FLOAT_16,
    np.dtype(np.float32): rt.HalElementType.FLOAT_32,
    np.dtype(ml_dtypes.bfloat16): rt.HalElementType.BFLOAT_16,
}

# Graphs of these ops are a module each: their gradients are loops, which do not compile beside a
# computed constant (docs/iree-reports/loop_beside_initializer.mlir).
ALONE = ("routed_linear",)


class Compiled:
    """Graphs without parameters, by name: one compiled module, or one for each (`apart`).

    A module is compiled when one of its functions is called.
    """

    def __init__(self, graphs: Iterable[Graph], folder: Path, *, apart: bool = False) -> None:
        every = {graph.name: graph for graph in graphs}
        alone = {name for name in every if apart or name.startswith(ALONE)}
        others = [graph for name, graph in every.items() if name not in alone]
        self._parts = {name: [graph] if name in alone else others for name, graph in every.items()}
        self._folder = folder
        self._modules: dict[str, Loaded] = {}

    def __call__(self, name: str, *arrays: Array) -> list[Array]:
        """The results of one function, in the types that its graph states."""
        part = {graph.name: graph for graph in self._parts[name]}
        if name not in self._modules:
            folder = self._folder / name
            folder.mkdir()
            self._modules |= dict.fromkeys(part, _loaded([*part.values()], folder))
        return self._modules[name].call(part[name], arrays)


def compiled_fixture(graphs: Callable[[], Iterable[Graph]]) -> Any:
    """A fixture `compiled` of a test module: the graphs that its tests call."""

    @pytest.fixture(scope="module")
    def compiled(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Compiled:
        folder = tmp_path_factory.mktemp("compiled")
        return Compiled(graphs(), folder, apart=not _all_selected(request))

    return compiled


def _all_selected(request: pytest.FixtureRequest) -> bool:
    """Whether this run has every test of a module that asks for the fixture."""
    selected = {item.name for item in request.session.items if item.path == request.path}
    return all(
        item.name in selected
        for item in request.node.collect()
        if request.fixturename in item.fixturenames
    )


class Loaded:
    """A compiled module, and the archive of its parameters if it has any."""

    def __init__(self, program: Path, parameters: Path | None = None) -> None:
        instance = rt.VmInstance()
        self._device = rt.get_device("local-task")
        modules = [rt.create_hal_module(instance, self._device)]
        if parameters is not None:
            index = rt.ParameterIndex()
            index.load(str(parameters))
            provider = index.create_provider(scope=PARAMETER_SCOPE)
            modules.append(rt.create_io_parameters_module(instance, provider))
        self._program = LoadedProgram(program.read_bytes(), *modules, instance=instance)

    def call(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        """The results of a graph's function, in the types that the graph states."""
        arguments = rt.VmVariantList(len(arrays))
        for array in arrays:
            arguments.push_ref(self._upload(array))
        results = rt.VmVariantList(len(graph.outputs))
        self._program.call(self._program.function(graph.name), arguments, results)
        return [
            self._download(results.get_as_object(i, rt.HalBufferView), tensor.dtype.numpy)
            for i, tensor in enumerate(graph.outputs)
        ]

    def _upload(self, array: Array) -> rt.HalBufferView:
        return self._device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=self._device,
            # As unsigned integers: NumPy's buffers do not say bfloat16.
            buffer=np.array(array, order="C").view(np.dtype(f"u{array.dtype.itemsize}")),
            element_type=_ELEMENT_TYPES[array.dtype],
        )

    def _download(self, view: rt.HalBufferView, dtype: np.dtype[Any]) -> Array:
        raw = view.map().asarray(view.shape, np.dtype(f"u{dtype.itemsize}"))
        return np.array(raw).view(dtype)


def _loaded(graphs: Sequence[Graph], folder: Path) -> Loaded:
    """Compile graphs without parameters as one module."""
    source, program = folder / "module.mlir", folder / "module.vmfb"
    source.write_text(module_text("module", graphs, "model"), encoding="utf-8")
    target, called = find_target("host"), kernels(graphs)
    with Compilation(source, program, target, kernels=called, chains=chains(graphs)) as compiler:
        compiler.wait()
    return Loaded(program)
