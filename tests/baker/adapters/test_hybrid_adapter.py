"""An adapter of a recurrent hybrid, merged and served: against PEFT in transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.pipeline.bake import bake
from hearthd.baker.progress import TerminalProgress
from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.runtime.interface import ALL_LOGITS, read_prompt
from hearthd.runtime.open_bundle import open_bundle
from tests.baker.adapters.hybrid_case import LOGITS, PROMPT, RANK, write_hybrid
from tests.conftest import few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.runtime.language_model import IreeRuntime

pytestmark = [pytest.mark.nightly, pytest.mark.slow]
TOLERANCE = 1e-4  # of logits up to 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model and its adapter, and bundles when they are baked."""
    folder = tmp_path_factory.mktemp("hybrid")
    write_hybrid(folder)
    return folder


def opened(folder: Path, name: str, **options: object) -> IreeRuntime:
    options |= {"model": None, "weights": folder / "model", "precision": "f32", "context": 256}
    with few_entry_points():
        bundle = bake(options_for(folder / name, **options), TerminalProgress(Console(quiet=True)))
    return open_bundle(bundle, threads=1)[1]


def require_the_logits_of_peft(runtime: IreeRuntime) -> None:
    np.testing.assert_allclose(
        read_prompt(runtime, PROMPT, margin=ALL_LOGITS), np.load(LOGITS), rtol=0, atol=TOLERANCE
    )


def test_a_merged_adapter_gives_the_logits_of_peft(folder: Path) -> None:
    require_the_logits_of_peft(opened(folder, "merged", adapter=folder / "adapter"))


def test_an_adapter_that_is_served_gives_the_logits_of_peft(folder: Path) -> None:
    runtime = opened(folder, "served", adapters=1, rank=RANK)
    factors = read_factors(folder / "adapter", runtime.adapters)
    runtime.write_adapter(1, factors.arrays)
    runtime.set_adapter(0, 1, factors.scale)
    require_the_logits_of_peft(runtime)
    runtime.set_adapter(0, 0, 0.0)
    without = read_prompt(runtime, PROMPT, margin=ALL_LOGITS)
    assert np.abs(without - np.load(LOGITS)).max() > 1  # the adapter matters


def test_the_recording_equals_peft(folder: Path) -> None:
    pytest.importorskip("peft", reason="PEFT is not installed")
    from tests.golden.record_peft_hybrid import hybrid_logits

    np.testing.assert_allclose(hybrid_logits(folder), np.load(LOGITS), rtol=0, atol=1e-5)
