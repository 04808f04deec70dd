"""The GRU's script: trained a little, it bakes and predicts better than the last sample does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from examples import training
from examples.train_gru import STEPS, main, signals
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.bundle import ArraysManifest, read_manifest_of
from hearthd.runtime.array_functions import ArraysRuntime
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.nightly
def test_a_trained_gru_is_baked_and_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "COMPARED", 8)
    main(steps=150, out=tmp_path, seed=0)
    said = capsys.readouterr().out
    assert f"the first {training.COMPARED} losses equal NumPy's within" in said
    losses = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] / 8
    assert ET.parse(tmp_path / "loss.svg").getroot().get("role") == "img"

    files = {"weights": tmp_path / "gru.safetensors", "out": tmp_path / "bundle"}
    options = {"model": "gru", "steps": STEPS, "batch": 16, "form": "loop", **files}
    bundle = bake(bake_options(options), Silent())
    manifest = read_manifest_of(bundle, ArraysManifest)
    runtime = ArraysRuntime(bundle, manifest, threads=None)
    made = signals(np.random.default_rng(99), STEPS + 1, 16)
    predicted = runtime.run("run", {"x": made[:-1, :, None]})["y"][:, :, 0]
    late = slice(STEPS // 2, None)  # by then it has seen the frequencies
    error = ((predicted - made[1:])[late] ** 2).mean()
    assert error < 0.5 * ((made[:-1] - made[1:])[late] ** 2).mean()
