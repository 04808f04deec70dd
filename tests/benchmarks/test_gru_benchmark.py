"""The GRU benchmark: compile a model, check its result and measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.engines.gru_worker import EXPECTED, GruModel, measure_in_process
from benchmarks.gru_speed import HIDDEN, compile_model, models, ratios

if TYPE_CHECKING:
    from pathlib import Path

TINY = GruModel(form="fused", hidden=4, steps=3)


def test_a_model_is_compiled_and_measured_against_numpy(tmp_path: Path) -> None:
    compiled = compile_model(TINY, tmp_path, limit=60)
    assert compiled.failure is None
    assert compiled.size > 1000
    times = measure_in_process("hearth", [TINY], tmp_path, 1)
    assert 0 < times[TINY.name] < 1000
    np.save(tmp_path / TINY.name / EXPECTED, np.ones((3, 1, 4), np.float32))
    with pytest.raises(AssertionError, match=r"hearth, fused_4_3: the error is"):
        measure_in_process("hearth", [TINY], tmp_path, 1)


def test_a_compiler_that_exceeds_the_limit_is_killed(tmp_path: Path) -> None:
    compiled = compile_model(TINY, tmp_path, limit=0.01)
    assert compiled.failure == "iree-compile took more than 0.01 s"


def test_ratios_use_medians() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{str(hidden): value for hidden in HIDDEN} for value in values]

    assert ratios({"fused": rounds(1, 2, 9), "torch": rounds(3, 4, 50)}) == (
        "time of torch / time of the form, by H: fused 2.00 2.00 2.00"
    )
    assert "not installed" in ratios({"fused": rounds(1)})


def test_a_long_compilation_is_an_option() -> None:
    unrolled = GruModel(form="unrolled", hidden=64, steps=1000)
    assert unrolled not in models(long=False)
    assert {*models(long=True)} - {*models(long=False)} == {unrolled}
