"""The logits of a quantized folder in its default precision, against f32 of the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.parameters.native import default_precision
from hearthd.baker.precision.kl_from_f32 import Meter
from hearthd.baker.weights.open_weights import open_weights
from tests.baker.weights.quantized.folders import LLAMA, config, write_folders
from tests.baker.weights.quantized.packing_cases import CASES

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = tuple(np.random.default_rng(1).integers(0, 96, 16).tolist())


@pytest.mark.parametrize(
    ("case", "tolerance"), [("awq", 1e-8), ("gptq_4_symmetric", 1e-7), ("gptq_4_desc_act", 1e-4)]
)
def test_only_activations_are_rounded_where_integers_are_kept(
    case: str, tolerance: float, tmp_path: Path
) -> None:
    source = open_weights(write_folders(CASES[case], tmp_path).quantized)
    precision = default_precision("native", source, LLAMA, config())
    assert Meter(source, LLAMA, config(), [TOKENS]).measure(precision).mean < tolerance
