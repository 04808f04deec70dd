"""`hearth generate` with real models: llama.cpp's greedy text."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import hearthd

if TYPE_CHECKING:
    from tests.e2e.conftest import RealModel

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_generate_writes_llama_cpps_text(real_model: RealModel) -> None:
    case = real_model.cases["facts"]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "hearthd", "generate"),
            *(str(real_model.bundle), case["prompt"], "--temperature", "0", "--max-tokens", "16"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    text = result.stdout.removesuffix("\n")
    assert len(text.split()) > 8
    assert case["text"].startswith(text)
    assert "tokens/s" in result.stderr


def test_a_loaded_model_has_llama_cpps_text(real_model: RealModel) -> None:
    case = real_model.cases["facts"]
    with hearthd.load(real_model.bundle) as model:
        text = model.generate(case["prompt"], temperature=0, max_tokens=16)
    assert len(text.split()) > 8
    assert case["text"].startswith(text)
