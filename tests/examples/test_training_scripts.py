"""The training code that the scripts share, on a task with one matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from examples import training
from examples.training import Task, Trained, WrongLoss, draw_losses, train, train_step
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn import Linear
from hearthd.models.dsl.optimizers import Sgd
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.dsl.graph import Tensor

SVG = "{http://www.w3.org/2000/svg}"
X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], np.float32)
RIGHT = np.array([[2.0, -3.0]], np.float32)


def task() -> Task:
    """Find the matrix that makes X @ RIGHT.T of X."""
    layer = Linear(2, 1)

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return f.mean_squared_error(layer(x), target)

    batch = {"x": TensorType((3, 2), DType.F32), "wanted": TensorType((3, 1), DType.F32)}
    return Task(
        weights=layer.parameters(), batch=batch, loss=loss, optimizer=Sgd(rate=0.1, momentum=0.5)
    )


def trained(steps: int) -> Trained:
    begin = {"weight": np.zeros((1, 2), np.float32)}
    batch = (X, X @ RIGHT.T)
    return train(task(), begin, lambda _: batch, steps=steps, say=lambda _: None)


def test_a_step_maps_weights_state_and_batch_to_weights_state_and_loss() -> None:
    graph = train_step(task())
    assert [tensor.shape for tensor in graph.inputs] == [(1, 2), (1, 2), (3, 2), (3, 1)]
    assert [tensor.shape for tensor in graph.outputs] == [(1, 2), (1, 2), ()]
    assert not graph.parameters


def test_training_finds_the_weights_and_losses_equal_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "COMPARED", 5)  # later losses are only rounding errors
    result = trained(60)
    np.testing.assert_allclose(result.weights["weight"], RIGHT, atol=1e-4)
    assert result.losses[0] == pytest.approx(float(((X @ RIGHT.T) ** 2).mean()), rel=1e-6)
    assert result.losses[-1] < 1e-8
    assert result.losses[: training.COMPARED] == pytest.approx(result.numpy_losses, rel=1e-5)


@pytest.mark.parametrize("wrong", [1.0001, np.nan])
def test_a_loss_that_differs_from_numpy_is_an_error(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    right = training._numpy_losses
    monkeypatch.setattr(
        training, "_numpy_losses", lambda *arguments: [loss * wrong for loss in right(*arguments)]
    )
    with pytest.raises(WrongLoss, match="step 0: the loss is"):
        trained(1)


def test_the_loss_curve_has_every_step(tmp_path: Path) -> None:
    path = tmp_path / "loss.svg"
    draw_losses(Trained(losses=[4.0, 2.0, 1.0], numpy_losses=[4.0], weights={}), path, "A title")
    svg = ET.parse(path).getroot()
    assert svg.get("aria-label") == "A title"
    lines = (path for path in svg.iter(f"{SVG}path") if "#2a9d8f" in path.get("style", ""))
    line = next(lines)  # the second one is in the legend
    assert line.get("d", "").count("L") == 2
