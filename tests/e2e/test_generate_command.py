"""`hearth generate` on the real model: llama.cpp's greedy text."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import hearthd
from tests.e2e.test_serve import CASES

if TYPE_CHECKING:
    from tests.conftest import Bundles

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_generate_writes_llama_cpps_text(bundles: Bundles) -> None:
    case = CASES["story"]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "hearthd", "generate"),
            *(str(bundles["int8-g32"]), case["prompt"], "--temperature", "0", "--max-tokens", "16"),
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


def test_a_loaded_model_has_llama_cpps_text(bundles: Bundles) -> None:
    case = CASES["story"]
    with hearthd.load(bundles["int8-g32"]) as model:
        text = model.generate(case["prompt"], temperature=0, max_tokens=16)
    assert len(text.split()) > 8
    assert case["text"].startswith(text)
