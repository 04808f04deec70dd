"""The fuzzer of models in small."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from tools.fuzz.compiled import model_runs
from tools.fuzz.compiled.model_maker import KINDS, make_model
from tools.fuzz.compiled.model_runs import check_model

NIGHTLY = pytest.mark.nightly
# One with windows, one with fused projections, and the recurrences that only kernels compute.
_AT_NIGHT = ("gemma3", "phi3", "mamba", "kimi-linear", "rwkv7")


# The fuzzer takes all.
@pytest.mark.parametrize(
    "model_kind", [*(pytest.param(kind, marks=NIGHTLY) for kind in _AT_NIGHT), "gru"]
)
def test_a_random_model_equals_numpy(model_kind: str) -> None:
    model = make_model(KINDS.index(model_kind))
    assert model.text.startswith(model_kind)
    compared, findings = check_model(
        dataclasses.replace(model, graphs=model.graphs[:1], arguments=model.arguments[:1])
    )
    assert findings == []
    assert compared == 1


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        model_runs, "evaluate", lambda *arguments: [value + 1e-3 for value in evaluate(*arguments)]
    )
    compared, findings = check_model(make_model(KINDS.index("gru")))
    assert {cause for cause, _ in findings} == {"compiled"}
    assert len(findings) == compared


def test_a_seed_makes_the_same_model() -> None:
    one, two = make_model(1), make_model(1)
    assert one.text == two.text
    for left, right in zip(one.arguments, two.arguments, strict=True):
        for x, y in zip(left, right, strict=True):
            np.testing.assert_array_equal(x, y)
