"""`hearth bake` of a Modelfile: the options and the preset that it bakes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from hearthd.baker import cli
from hearthd.bundle import Preset

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.pipeline.bake_options import BakeOptions

PRESET = Preset(system="Be terse.")


@pytest.fixture
def modelfile(tmp_path: Path) -> Path:
    for name in ("model.gguf", "mmproj.gguf", "lora.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    text = "FROM model.gguf\nFROM mmproj.gguf\nADAPTER lora.gguf\nSYSTEM Be terse.\nPARSER x\n"
    (tmp_path / "Modelfile").write_text(text)
    return tmp_path / "Modelfile"


@pytest.mark.parametrize("adapter", [None, "other.gguf"])
def test_a_flag_is_above_the_modelfile(
    modelfile: Path, adapter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    baked: list[tuple[BakeOptions, Preset]] = []

    def record(options: BakeOptions, _: Any, preset: Preset) -> Path:
        baked.append((options, preset))
        return modelfile

    monkeypatch.setattr(cli, "bake", record)
    monkeypatch.setattr(cli, "_show", lambda *_, **__: None)
    folder = modelfile.parent
    flags = ["--adapter", str(folder / adapter)] if adapter else []
    result = CliRunner().invoke(cli.app, [str(modelfile), *flags], catch_exceptions=False)
    assert f"{modelfile}:5: PARSER is not used" in result.output
    ((options, preset),) = baked
    assert options.weights == folder / "model.gguf"
    assert options.mmproj == folder / "mmproj.gguf"
    assert options.adapter == folder / (adapter or "lora.gguf")
    assert preset == PRESET
