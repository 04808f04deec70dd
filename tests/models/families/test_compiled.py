"""Every family as a compiled program: one module of their decodes, against NumPy.

The matrices are int8 in groups, and the vocabulary is not a multiple of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from models.catalog import ARCHITECTURES
from models.dsl.graph import make_graph
from models.program import ProgramOptions
from tests.models.compiled import Compiled
from tests.models.dsl.test_fuse import program_of
from tests.models.numpy_device import Device

if TYPE_CHECKING:
    from models.dsl.graph import Graph

OPTIONS = ProgramOptions(context=64, precision="int8-g32", prefill_tokens=(4,), decode_batches=(1,))
TOKENS = [5, 9, 33, 2, 60, 17, 41, 8]
VOCABULARY = 67


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
def compiled(devices: dict[str, Device], tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    graphs = [
        with_parameters_as_inputs(name, graph)
        for name, device in devices.items()
        for point, graph in device.program.entry_points
        if point.name == "decode_1"
    ]
    return Compiled(graphs, tmp_path_factory.mktemp("families"))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_compiled_decode_equals_numpy(
    architecture: str, devices: dict[str, Device], compiled: Compiled
) -> None:
    device = devices[architecture]
    ((_, graph),) = [pair for pair in device.program.entry_points if pair[0].name == "decode_1"]
    parameters = [device.weights[name] for name in graph.parameters]
    caches, ours = device.slot(), device.slot()
    for position, token in enumerate(TOKENS):
        numbers: Any = (np.array([value], np.int32) for value in (token, position, 1))
        logits, *caches = compiled(architecture, *numbers, *caches, *parameters)
        expected, (ours,) = device.decode([ours], [token], [position])
        assert logits.shape == (1, VOCABULARY)
        np.testing.assert_allclose(logits, expected, atol=2e-3 * np.abs(expected).max())
