"""Every family as a compiled program: one module of their decodes, against NumPy.

The matrices are int8 in groups, and the vocabulary is not a multiple of a group.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.targets import find_target
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.fused.two_part_head import ALL
from hearthd.models.dsl.graph import make_graph
from hearthd.models.dsl.mlir.stablehlo import chains, kernels, module_text
from hearthd.models.program import ProgramOptions
from tests.models.compiled import Compiled
from tests.models.numpy_device import Device
from tests.models.test_optimized import program_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hearthd.models.dsl.graph import Graph

OPTIONS = ProgramOptions(context=64, precision="int8-g32", prefill_tokens=(4,), decode_batches=(1,))
TOKENS = [5, 9, 33, 2, 60, 17, 41, 8]
VOCABULARY = 67


def function_name(architecture: str) -> str:
    """A name that MLIR allows."""
    return architecture.replace("-", "_")


def with_parameters_as_inputs(name: str, graph: Graph) -> Graph:
    """The graph as a function of its parameters too."""
    inputs = (*graph.inputs, *graph.parameters.values())
    return make_graph(name, inputs, graph.outputs, {}, {})


@pytest.fixture(scope="module")
def devices() -> dict[str, Device]:
    return {
        name: Device(program_of(name, OPTIONS, vocab_size=VOCABULARY)) for name in ARCHITECTURES
    }


@pytest.fixture(scope="module")
def graphs(devices: dict[str, Device]) -> list[Graph]:
    return [
        with_parameters_as_inputs(function_name(name), graph)
        for name, device in devices.items()
        for point, graph in device.program.entry_points
        if point.name == "decode_1"
    ]


@pytest.fixture(scope="module")
def compiled(graphs: list[Graph], tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(graphs, tmp_path_factory.mktemp("families"))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.nightly
def test_a_compiled_decode_equals_numpy(
    architecture: str, devices: dict[str, Device], compiled: Compiled
) -> None:
    device = devices[architecture]
    ((_, graph),) = [pair for pair in device.program.entry_points if pair[0].name == "decode_1"]
    parameters = [device.weights[name] for name in graph.parameters]
    caches, ours = device.slot(), device.slot()
    for position, token in enumerate(TOKENS):
        numbers: Any = (np.array([value], np.int32) for value in (token, position, ALL))
        logits, *caches = compiled(function_name(architecture), *numbers, *caches, *parameters)
        expected, (ours,) = device.decode([ours], [token], [position])
        assert logits.shape == (1, VOCABULARY)
        np.testing.assert_allclose(logits, expected, atol=2e-3 * np.abs(expected).max())


class Copy(NamedTuple):
    """Bytes that a program copies, as the compiler writes them in its phase `stream`."""

    source: str
    source_start: int
    target: str
    target_start: int
    size: int

    def writes_what(self, other: Copy) -> bool:
        """Whether the other copy reads bytes that this one writes."""
        return (
            self.target == other.source
            and self.target_start < other.source_start + other.size
            and other.source_start < self.target_start + self.size
        )


COPY = re.compile(r"stream\.cmd\.copy (%\w+)\[%c(\d+)\w*\], (%\w+)\[%c(\d+)\w*\], %c(\d+)")


def concurrent_copies(text: str) -> Iterator[list[Copy]]:
    """The copies of each region whose commands run at the same time."""
    for region in re.findall(r"^( *)stream\.cmd\.concurrent \{\n(.*?)^\1\}", text, re.M | re.S):
        copies = [
            Copy(source, int(start), target, int(to), int(size))
            for source, start, target, to, size in COPY.findall(region[1])
        ]
        assert len(copies) == region[1].count("stream.cmd.copy")
        yield copies


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("gemma3", "lfm2"), pytest.param(tuple(ARCHITECTURES), marks=pytest.mark.nightly)],
    ids=len,
)
@pytest.mark.nightly
def test_no_copy_reads_what_another_writes_at_the_same_time(
    names: Sequence[str], graphs: list[Graph], tmp_path: Path
) -> None:
    """A race gives wrong values in one call of many: docs/iree-reports/concurrent_copies.mlir."""
    graphs = [graph for graph in graphs if graph.name in map(function_name, names)]
    source, output = tmp_path / "module.mlir", tmp_path / "module.stream"
    source.write_text(module_text("module", graphs, "model"), encoding="utf-8")
    target = find_target("host")
    with Compilation(
        source, output, target, kernels=kernels(graphs), chains=chains(graphs), until="stream"
    ) as compiler:
        compiler.wait()
    regions = list(concurrent_copies(output.read_text(encoding="utf-8")))
    assert regions
    races = [(a, b) for copies in regions for a in copies for b in copies if a.writes_what(b)]
    assert not races
