"""A sequence has the same bits in every batch, and in a verify, whatever the widths of matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.models.dsl.graph import make_graph
from hearthd.models.program import ProgramOptions
from tests.models.compiled import Compiled
from tests.models.numpy_device import Device
from tests.models.test_optimized import program_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.program import Program

    Array = NDArray[Any]

OPTIONS = ProgramOptions(
    context=64, precision="f32", prefill_tokens=(8,), decode_batches=(1, 2), verify_tokens=(2,),
    pair_tokens=2,
)  # fmt: skip
# A kernel for one row of a result covers 289 columns with parts of 17: vectors of 8 leave
# one column, and with vectors of 16 it computes each of 149 and of 257 columns alone.
WIDTHS = {"hidden": 149, "ffn": 289, "vocab_size": 257, "layers": 1}
# What they are for a model with sums of streams.
STREAMS = {
    "windows": (None,), "caching_layers": 1, "ffns": (289,), "deviations": (1.6,),
    "layer_vocab": 257,
}  # fmt: skip
# Rows of more values than the statistics of one dispatch hold.
WIDE = {"hidden": 2053}
PROMPTS = ([5, 9, 33, 2, 60, 17, 41, 8], [12, 7, 256])


class CompiledDevice(Device):
    """A program whose decodes and verifies are compiled, as functions of their weights too."""

    def __init__(self, program: Program, folder: Path) -> None:
        super().__init__(program)
        self.graphs = {
            point.name: make_graph(
                point.name, (*graph.inputs, *graph.parameters.values()), graph.outputs, {}, {}
            )
            for point, graph in program.entry_points
            if point.kind in ("decode", "verify")
        }
        self.parameters = {point.name: [*graph.parameters] for point, graph in program.entry_points}
        self.compiled = Compiled(self.graphs.values(), folder)

    @override
    def call(self, name: str, numbers: Sequence[Sequence[int]], caches: list[Array]) -> list[Array]:
        if name not in self.graphs:
            return super().call(name, numbers, caches)
        arguments = [np.array(values, np.int32) for values in numbers]
        weights = [self.weights[parameter] for parameter in self.parameters[name]]
        return self.compiled(name, *arguments, *caches, *weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "precision", "changes"),
    [
        pytest.param("gemma3", "f32", WIDTHS, marks=pytest.mark.nightly),
        pytest.param("gemma3", "bf16", WIDTHS, marks=pytest.mark.nightly),
        pytest.param("command-r", "f32", WIDTHS, marks=pytest.mark.nightly),
        pytest.param("command-r", "f32", WIDTHS | WIDE, marks=pytest.mark.nightly),
        pytest.param("gemma3n", "f32", WIDTHS | STREAMS, marks=pytest.mark.nightly),
    ],
)
def test_a_sequence_has_the_same_bits_in_every_batch_and_verify(
    architecture: str, precision: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    options = replace(OPTIONS, precision=precision)
    device = CompiledDevice(program_of(architecture, options, **changes), tmp_path)
    slots = [device.prefill(device.slot(), prompt, 0) for prompt in PROMPTS]
    ends = [len(prompt) for prompt in PROMPTS]
    alone, (after,) = device.decode(slots[:1], [4], ends[:1])
    together, (beside, _) = device.decode(slots, [4, 50], ends)
    verified, ahead = device.verify(slots[0], [4, 50], ends[0])
    for logits in (together, verified):
        assert np.array_equal(alone[0], logits[0])
    for cache, other, longer in zip(after, beside, ahead, strict=True):
        assert np.array_equal(cache, other)
        assert np.array_equal(cache[: ends[0] + 1], longer[: ends[0] + 1])
    paired, (ahead_of_first, _) = device.verify_pair(slots, [[4, 50], [50, 9]], ends)
    assert np.array_equal(paired[:2], verified)
    assert np.array_equal(paired[2], together[1])
    for longer, other in zip(ahead, ahead_of_first, strict=True):
        assert np.array_equal(longer, other)
    following, _ = device.decode([after], [50], [ends[0] + 1])
    assert np.array_equal(following[0], verified[1])
