"""A small mixture, baked: several chunks at once leave the bits of one after the other."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.pipeline.bake import bake, resolve
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.runtime.language_model import IreeRuntime
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.test_streamed_experts import write_model
from tests.models.families.hybrid_models import write_model as write_recurrent_model

if TYPE_CHECKING:
    from pathlib import Path

LONG, CHUNK = 512, 128


def planned(weights: Path, context: int) -> int:
    """The size of a long prefill of a bundle of these weights."""
    options = {"model": None, "weights": weights, "slots": 1, "precision": "int8-g32"}
    plan = resolve(options_for(weights.parent / "out", context=context, **options))
    assert isinstance(plan, LanguagePlan)
    return plan.program.long_prefill


@pytest.mark.slow
def test_a_long_prefill_leaves_the_bits_of_its_chunks(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "weights")
    options = {"model": None, "weights": weights, "slots": 2, "precision": "int8-g32"}
    with few_entry_points():
        bundle = bake(options_for(tmp_path / "bundle", context=1024, **options), Silent())
    manifest = read_manifest_of(bundle, LanguageManifest)
    runtime = IreeRuntime(bundle, manifest, threads=2)
    assert (runtime.longest_prefill, runtime.chunk) == (LONG, CHUNK)
    tokens = random.Random(1).choices(range(256), k=CHUNK + LONG + 1)
    for start in (0, CHUNK):
        runtime.prefill(0, tokens[start : start + LONG], start)
        for at in range(start, start + LONG, CHUNK):
            runtime.prefill(1, tokens[at : at + CHUNK], at)
        end = start + LONG
        assert np.array_equal(runtime.save(0, 0, end), runtime.save(1, 0, end))
        first, second = runtime.decode([0, 1], [tokens[end]] * 2, [end] * 2)
        assert np.array_equal(first, second)


@pytest.mark.parametrize(("context", "expected"), [(LONG, 0), (LONG + 1, LONG)])
def test_a_context_that_is_not_longer_has_no_long_prefill(
    tmp_path: Path, context: int, expected: int
) -> None:
    assert planned(write_model(tmp_path / "weights"), context) == expected


def test_windows_and_states_have_no_long_prefill(tmp_path: Path) -> None:
    assert planned(small_gemma(tmp_path / "windows"), 600) == 0
    assert planned(write_recurrent_model(tmp_path / "states", "qwen35moe"), 600) == 0
