"""Real models and what llama.cpp answered with their weights in f32."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Bundles

GOLDEN = Path(__file__).parent.parent / "golden"
# Bundles of tests/conftest.py, and the recordings of their weights.
RECORDINGS = {
    "smollm2": GOLDEN / "smollm2_135m_llamacpp_f32.json",
    "gemma3": GOLDEN / "gemma3_270m_llamacpp_f32.json",
}


@dataclass(frozen=True)
class RealModel:
    bundle: Path
    cases: dict[str, dict[str, Any]]
    """By name, a prompt and llama.cpp's greedy continuation of it.

    Some are not sure: the two best tokens of a step of `story` are as good within 0.5 %.
    """


@pytest.fixture(
    scope="module", params=["smollm2", pytest.param("gemma3", marks=pytest.mark.nightly)]
)
def real_model(request: pytest.FixtureRequest, bundles: Bundles) -> RealModel:
    recording = json.loads(RECORDINGS[request.param].read_text(encoding="utf-8"))
    return RealModel(bundles[request.param], recording["cases"])
