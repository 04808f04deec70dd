"""`hearth tune` takes a path in place of a name, and its last line bakes what was tuned."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.tuning import cli
from hearthd.bundle import NotABundle
from tests.baker.small_gemma import small_gemma

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.tuning.tune_request import TuneRequest


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[TuneRequest]:
    """What was asked to be tuned; nothing is."""
    tuned: list[TuneRequest] = []
    monkeypatch.setattr(cli, "tune", lambda request, *_: tuned.append(request))
    return tuned


def run(*arguments: object) -> list[str]:
    """The words of the command that the last line names."""
    options = ["--data", "d.jsonl", "--out", "my adapter"]
    result = CliRunner().invoke(cli.app, [*map(str, arguments), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    _, command = result.stdout.splitlines()[-1].split("next: ")
    return shlex.split(command)


def test_weights_say_which_model_they_are(requests: list[TuneRequest], tmp_path: Path) -> None:
    weights = small_gemma(tmp_path / "tiny gemma 0.1b")
    command = run(weights)
    assert [(each.model, each.weights) for each in requests] == [("gemma3", weights)]
    assert command == [
        "hearth", "bake", str(weights), "--adapter", "my adapter", "--out", "tiny gemma 0.1b-tuned"
    ]  # fmt: skip
    assert resolve(bake_options({"weights": command[2]})).record.model == "gemma3"
    assert run("gemma3", "--weights", weights) == command


def test_a_name_or_a_bundle_is_baked_by_its_name(
    requests: list[TuneRequest], tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").touch()
    for arguments in (("gemma3",), ("gemma3", "--weights", tmp_path)):
        assert run(*arguments)[:3] == ["hearth", "bake", "gemma3"]
    assert [each.weights for each in requests] == [None, tmp_path]


def test_what_is_neither_is_refused(requests: list[TuneRequest], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="expected a GGUF file, a Hugging Face folder, or one of"):
        run("gemma9")
    (tmp_path / "manifest.txt").touch()
    with pytest.raises(RecipeError, match=r"there is no such path; did you mean .*manifest\.txt"):
        run(tmp_path / "manifest.tx")
    with pytest.raises(NotABundle, match=r"has no config\.json"):
        run(tmp_path)
    (tmp_path / "manifest.json").touch()
    with pytest.raises(RecipeError, match="a bundle is given with --weights"):
        run(tmp_path)
    assert not requests
