"""LoRA: gradients and training against what PEFT has recorded, and against a plain forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.types import DslError
from hearthd.models.lora.training import Lora, adapted, gradient_graph, train_step
from tests.by_day import first_by_day
from tests.models.lora.lora_cases import CASES, GOLDEN, OPTIMIZER, STEPS, TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.lora.lora_cases import LoraCase

    Array = NDArray[Any]

each_case = pytest.mark.parametrize("name", first_by_day(CASES))
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def recorded() -> dict[str, Array]:
    return dict(np.load(GOLDEN))


def assert_near(actual: Array, expected: Array) -> None:
    """Within TOLERANCE of the largest expected value."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * abs(expected).max())


def batch_first(case: LoraCase, step: int) -> list[Array]:
    """The inputs of `gradient_graph`: a batch, then the adapters."""
    return [*case.batch(step), *case.initial().values()]


@each_case
def test_loss_and_gradients_are_those_of_peft(name: str, recorded: dict[str, Array]) -> None:
    case = CASES[name]
    graph = gradient_graph(case.graph, case.adapters, "gradient")
    loss, *gradients = evaluate(graph, batch_first(case, 0), case.weights())
    assert loss == pytest.approx(recorded[f"{name}/losses"][0], rel=TOLERANCE)
    for adapter, gradient in zip(case.adapters, gradients, strict=True):
        assert_near(gradient, recorded[f"{name}/{adapter}.gradient"])


@pytest.mark.nightly
@each_case
def test_fifty_steps_of_adamw_are_those_of_peft(name: str, recorded: dict[str, Array]) -> None:
    case, weights = CASES[name], CASES[name].weights()
    graph = train_step(case.graph, case.adapters, OPTIMIZER)
    types = {key: tensor.type for key, tensor in case.adapters.items()}
    state = [np.zeros(t.shape, t.dtype.numpy) for t in OPTIMIZER.state(types).values()]
    kept, losses = [*case.initial().values(), *state], []
    for step in range(STEPS):
        *kept, loss = evaluate(graph, [*kept, *case.batch(step)], weights)
        losses.append(float(loss))
    np.testing.assert_allclose(losses, recorded[f"{name}/losses"], rtol=TOLERANCE)
    for adapter, values in zip(case.adapters, kept, strict=False):
        assert_near(values, recorded[f"{name}/{adapter}"])


def test_a_projection_that_no_product_has_is_refused() -> None:
    case = CASES["llama"]
    model = ARCHITECTURES[case.architecture].model(case.config)
    lora = Lora(rank=1, alpha=1.0, projections=("q_proj", "qkv_proj", "embed_tokens"))
    with pytest.raises(DslError, match="loss: no product with a matrix embed_tokens, qkv_proj"):
        adapted(loss_graph(model, TOKENS), model.parameters(), lora)
    with pytest.raises(DslError, match="rank: expected at least 1, got 0"):
        Lora(rank=0, alpha=1.0)
