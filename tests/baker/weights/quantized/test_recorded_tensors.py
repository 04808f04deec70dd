"""Matrices that some libraries stored have the values that they compute.

tests/golden/record_quantized_tensors.py recorded them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from hearthd.baker.weights.open_weights import open_weights

RECORDED = sorted((Path(__file__).parents[3] / "golden/quantized").glob("*.safetensors"))


def test_every_format_is_recorded() -> None:
    assert len(RECORDED) == 25


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_values_are_those_of_the_library(path: Path, tmp_path: Path) -> None:
    with safe_open(path, framework="numpy") as file:
        settings = json.loads(file.metadata()["settings"])
    shutil.copy(path, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    source = open_weights(tmp_path)
    assert source.names() == ("expected", "layer.weight")
    tolerance = 1e-6
    if path.stem.startswith("nvfp4"):  # which compressed-tensors computes in bf16
        tolerance = 2.0**-8
    if path.stem in ("auto_round-8", "auto_round-auto_gptq-8"):  # and AutoRound in f16
        tolerance = 2.0**-10
    actual, expected = source.read("layer.weight"), source.read("expected")
    np.testing.assert_allclose(actual, expected, rtol=tolerance)
