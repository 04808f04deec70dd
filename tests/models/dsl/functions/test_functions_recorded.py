"""The functions and their gradients against what PyTorch computes, as it was recorded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.dsl.functions.function_cases import CASES, recorded, results


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_equal_torch(name: str) -> None:
    """Not the gradients of running statistics, which PyTorch does not have."""
    compared = 1 if name in ("batch_norm_training_1", "batch_norm_training_2") else None
    for actual, expected in zip(results(name)[:compared], recorded(name)[:compared], strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)
