"""The GRU's benchmark: a model is compiled, measured and held against its right answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.engines.gru_worker import ANSWER, Model, measure_apart
from benchmarks.gru import HIDDEN, compile_model, models, ratios

if TYPE_CHECKING:
    from pathlib import Path

TINY = Model(form="fused", hidden=4, steps=3)


def test_a_model_is_compiled_and_measured(tmp_path: Path) -> None:
    compiled = compile_model(TINY, tmp_path, limit=60)
    assert compiled.failure is None
    assert compiled.size > 1000
    found = measure_apart("hearth", [TINY], tmp_path, 1)
    assert 0 < found[TINY.name] < 1000
    np.save(tmp_path / TINY.name / ANSWER, np.ones((3, 1, 4), np.float32))
    with pytest.raises(AssertionError, match=r"hearth, fused_4_3: .* off"):
        measure_apart("hearth", [TINY], tmp_path, 1)


def test_a_compiler_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    compiled = compile_model(TINY, tmp_path, limit=0.01)
    assert compiled.failure == "iree-compile took more than 0.01 s"


def test_ratios_are_of_medians() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{str(hidden): value for hidden in HIDDEN} for value in values]

    assert ratios({"fused": rounds(1, 2, 9), "torch": rounds(3, 4, 50)}) == (
        "torch's time over ours, by H: fused 2.00 2.00 2.00"
    )
    assert "not installed" in ratios({"fused": rounds(1)})


def test_a_long_compilation_is_an_option() -> None:
    unrolled = Model(form="unrolled", hidden=64, steps=1000)
    assert unrolled not in models(long=False)
    assert {*models(long=True)} - {*models(long=False)} == {unrolled}
