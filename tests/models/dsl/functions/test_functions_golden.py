"""That the recorded results of PyTorch are what PyTorch computes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.golden.record_functions_torch import torch_results
from tests.models.dsl.functions.function_cases import CASES, recorded


@pytest.mark.parametrize("name", CASES)
def test_the_recording_equals_torch(name: str) -> None:
    for array, expected in zip(recorded(name), torch_results(name), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)
