"""The GRU against torch.nn.GRU itself, and that what was recorded of it is what it says.

The compiled forms are compared with the recorded numbers, in test_gru.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from hearthd.models.dsl import functions as f  # noqa: E402
from hearthd.models.dsl.evaluate import evaluate  # noqa: E402
from hearthd.models.dsl.types import DType  # noqa: E402
from hearthd.models.families.gru import config_from_shapes, program  # noqa: E402
from tests.golden.record_gru_torch import torch_gru  # noqa: E402
from tests.models.dsl.nn.gru_cases import (  # noqa: E402
    ONE_LAYER,
    Case,
    arrays_of,
    each_case,
    each_form,
    graph_of,
    joined,
    torch_answers,
)
from tests.models.graphs import gradient_graph  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@each_case
def test_the_recording_equals_torch(case: Case) -> None:
    for recorded, answer in zip(
        torch_answers()[case.name], torch_gru(case, DType.F64), strict=True
    ):
        np.testing.assert_allclose(recorded, answer, rtol=0, atol=1e-14)


@given(
    st.integers(1, 3), st.integers(1, 7), st.integers(1, 9), st.integers(1, 4),
    st.integers(1, 12), st.booleans(), st.booleans(), st.sampled_from(f.GRU_FORMS),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_state_dict_of_torch_loads(
    layers: int,
    inputs: int,
    hidden: int,
    batch: int,
    steps: int,
    bidirectional: bool,
    bias: bool,
    form: str,
) -> None:
    """torch's own initial weights, by torch's own names: the whole sequence, then step by step."""
    torch.manual_seed(layers + 10 * inputs)
    module = torch.nn.GRU(inputs, hidden, layers, bias=bias, bidirectional=bidirectional)
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    shapes = {name: array.shape for name, array in weights.items()}
    made = program(config_from_shapes(shapes, steps=steps, batch=batch, form=form))
    assert {*made.parameters} == {*weights}
    x, zeros = torch.randn(steps, batch, inputs), torch.zeros(made.graphs[0].inputs[1].shape)
    with torch.no_grad():
        expected = [tensor.numpy() for tensor in module(x)]
    actual = evaluate(made.graphs[0], [x.numpy(), zeros.numpy()], weights)
    for array, answer in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array, answer, rtol=0, atol=1e-6)
    if not bidirectional:
        h = zeros.numpy()
        for now, answer in zip(x.numpy(), expected[0], strict=True):
            y, h = evaluate(made.graphs[1], [now, h], weights)
            np.testing.assert_allclose(y, answer, rtol=0, atol=1e-6)
        np.testing.assert_allclose(h, expected[1], rtol=0, atol=1e-6)


@each_form
def test_gradients_equal_torch(form: str) -> None:
    """Of x, h0 and the four weights, with a random gradient of y and h_n."""
    graph = joined(graph_of(ONE_LAYER, form))
    arrays = arrays_of(ONE_LAYER)
    upstream = np.random.default_rng(6).normal(size=graph.outputs[0].shape)
    actual = evaluate(gradient_graph(graph), [*arrays, upstream], {})
    x, h0, *weights = (torch.tensor(array, requires_grad=True) for array in arrays)
    module = torch.nn.GRU(ONE_LAYER.inputs, h0.shape[2], dtype=torch.float64)
    named = dict(zip(ONE_LAYER.weights(DType.F64), weights, strict=True))
    results = torch.func.functional_call(module, named, (x, h0))
    torch.cat([result.flatten() for result in results]).backward(torch.from_numpy(upstream))
    for gradient, tensor in zip(actual, (x, h0, *weights), strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=0, atol=1e-12)
