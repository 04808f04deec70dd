"""A tower of integers changes the answers of a small model by less than the goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from PIL import Image

from benchmarks.tower_divergence import measured
from hearthd.baker.pipeline.bake import bake
from tests.baker.small_smolvlm import pixels, small_smolvlm
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path

GOAL = 0.001  # nats


@pytest.mark.slow
@pytest.mark.nightly
def test_a_tower_of_integers_changes_answers_by_less_than_the_goal(tmp_path: Path) -> None:
    folder, image = small_smolvlm(tmp_path / "model"), tmp_path / "image.png"
    Image.fromarray(pixels(100, 60)).save(image)
    bundles = []
    for precision in ("f32", "int8-g32"):
        options = options_for(
            tmp_path / precision,
            model=None,
            weights=folder,
            precision=precision,
            context=512,
            slots=1,
        )
        with few_entry_points():
            bundles.append(bake(options, Silent()))
    exact, rounded = bundles
    found = measured(exact, rounded, [image], tokens=8)
    assert 0 < found.mean < GOAL
    assert found.row_error > 0
    assert measured(exact, exact, [image], tokens=8).mean == 0
