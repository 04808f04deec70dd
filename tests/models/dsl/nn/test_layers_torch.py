"""The layers against PyTorch's: the names and shapes of their parameters, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.types import DType
from tests.models.dsl.nn.layer_cases import LAYERS, layer_arrays, layer_graph

torch = pytest.importorskip("torch", reason="torch is not installed")

# What a state_dict has beside parameters: how often batch norm's statistics were updated.
COUNTER = "num_batches_tracked"


def torch_layer(name: str) -> Any:
    """PyTorch's layer that stands for the one of LAYERS, in float64."""
    nn = torch.nn
    made = {
        "linear": lambda: nn.Linear(4, 3, bias=False),
        "linear_bias": lambda: nn.Linear(4, 3),
        "rms_norm": lambda: nn.RMSNorm(5, eps=1e-3),
        "layer_norm": lambda: nn.LayerNorm(5, eps=1e-3),
        "group_norm": lambda: nn.GroupNorm(2, 4, eps=1e-3),
        "batch_norm": lambda: nn.BatchNorm1d(3, eps=1e-3).eval(),
        "conv1d": lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
        "conv2d": lambda: nn.Conv2d(2, 3, (3, 2), bias=False),
        "conv3d": lambda: nn.Conv3d(1, 2, (2, 1, 2)),
        "conv_transpose1d": lambda: nn.ConvTranspose1d(
            4, 2, 3, stride=3, padding=1, dilation=2, output_padding=2, groups=2
        ),
        "conv_transpose2d": lambda: nn.ConvTranspose2d(2, 3, (2, 3), bias=False),
        "gru": lambda: nn.GRU(3, 2, batch_first=True),
    }
    return made[name]().double()


@pytest.mark.parametrize("name", LAYERS)
def test_names_shapes_and_values(name: str) -> None:
    graph, layer = layer_graph(name, DType.F64), torch_layer(name)
    x, *weights = layer_arrays(graph)
    make, _ = LAYERS[name]
    state = dict(zip(make(DType.F64).parameters(), map(torch.tensor, weights), strict=True))
    kept = {key: one for key, one in layer.state_dict().items() if key == COUNTER}
    layer.load_state_dict(state | kept)  # strict: the same names and shapes, no more and no fewer
    expected = layer(torch.tensor(x))
    expected = expected[0] if isinstance(expected, tuple) else expected
    (actual,) = evaluate(graph, [x, *weights], {})
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
