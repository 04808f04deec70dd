"""Every op in the narrow floats: what is compiled has NumPy's value and type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.ops import REGISTRY, Sample
from hearthd.models.dsl.registry.facts import all_facts
from hearthd.models.dsl.registry.op_signature import slots, variants
from hearthd.models.dsl.types import COMPILED, DType
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.dsl.ops.op_checks import samples_of
from tests.models.graphs import traced

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Graph

# And the distance of 1 from the next number.
NARROW = {DType.F16: 2.0**-10, DType.BF16: 2.0**-7}


@functools.cache
def narrowed(dtype: DType) -> dict[str, tuple[Graph, Sample]]:
    """For each op that takes or gives that dtype, a sample of it; with no other float if it can."""
    graphs = {}
    for op in REGISTRY.values():
        samples = samples_of(op)
        # An input that only some samples have leaves no choice.
        fewest = min(len(sample.inputs) for sample in samples)
        decided = [slot for slot in slots(samples) if not slot.inputs or slot.inputs[0] < fewest]
        every = [one for sample in samples for one in variants(op, sample, decided)]
        if len({variant.dtypes for variant in every}) == 1:
            continue  # there is no choice
        chosen = [
            i
            for i, of in enumerate(zip(*(v.dtypes for v in every), strict=False))
            if len({*of}) > 1
        ]
        for variant in sorted(every, key=lambda one: len({*one.dtypes})):
            if dtype in (variant.dtypes[i] for i in chosen):
                sample = variant.sample
                name = f"{op.name}_{dtype.label}"
                graph = traced(
                    lambda *xs, op=op, attrs=sample.attrs: op(*xs, **attrs), sample.inputs, name
                )
                if all(x.dtype in COMPILED for x in (*graph.inputs, *graph.outputs)):
                    graphs[op.name] = graph, sample
                    break
    return graphs


compiled = compiled_fixture(
    lambda: (graph for dtype in NARROW for graph, _ in narrowed(dtype).values())
)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.label)
@pytest.mark.nightly
def test_a_narrow_float_is_compiled(dtype: DType, compiled: Compiled) -> None:
    """NumPy sums in f32 and rounds once; a program rounds as it goes."""
    for graph, sample in narrowed(dtype).values():
        (expected,), (actual,) = (
            evaluate(graph, sample.inputs, {}),
            compiled(graph.name, *sample.inputs),
        )
        assert actual.dtype == expected.dtype, graph.name
        exact, computed = expected.astype(np.float64), actual.astype(np.float64)
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
        error = 4 * NARROW[dtype] * largest
        assert np.allclose(computed, exact, rtol=0.0, atol=error), graph.name


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.label)
@pytest.mark.nightly
def test_every_op_that_is_said_to_take_it_is_looked_at(dtype: DType) -> None:
    said = {one.op.name for one in all_facts() if dtype in sum(one.signature.dtypes.values(), ())}
    assert said == narrowed(dtype).keys()
