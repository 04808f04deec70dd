"""`hearth bake` of models and drafters of the hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearthd.baker import cli
from hearthd.bundle import write_manifest
from hearthd.cli import main
from hearthd.find_or_bake import find
from hearthd.flags import UsageError
from tests.bundle.example_manifests import EXAMPLE

if TYPE_CHECKING:
    from hearthd.baker.pipeline.bake_options import BakeOptions
    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub

pytestmark = pytest.mark.usefixtures("hub")


@pytest.fixture
def baked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[BakeOptions]:
    """What was asked to be baked; a manifest is written in place of the bundle."""
    options: list[BakeOptions] = []

    def bake(chosen: BakeOptions, *_: object) -> Path:
        options.append(chosen)
        write_manifest(tmp_path, EXAMPLE)
        return tmp_path

    monkeypatch.setattr(cli, "bake", bake)
    return options


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["hearth", "bake", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code


def test_a_model_and_its_drafter_are_downloaded(
    small: Files, baked: list[BakeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_code(monkeypatch, "hf:a/gguf", "--drafter", "hf:a/gguf:Q8_0") == 0
    (options,) = baked
    weights, drafter = options.weights, options.drafter
    assert isinstance(weights, Path)
    assert isinstance(drafter, Path)
    assert weights.read_bytes() == small.gguf
    assert drafter.name == "model-Q8_0.gguf"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("hf:a/b",), 1, "hf:a/b: there is no such model at http"),
        (("hf:a",), 2, "MODEL: got 'hf:a', expected hf:ORG/REPO, "),
        (("gemma3", "--drafter", "hf:a"), 2, "--drafter: got 'hf:a', expected hf:ORG/REPO, "),
        (("hf:a/gguf", "--drafter", "hf:a"), 2, "--drafter: got 'hf:a', expected hf:ORG/REPO, "),
        (("hf:a/gguf", "--drafter", "hf:a/b"), 1, "hf:a/b: there is no such model at http"),
        (("hf:a/gguf", "--drafter", "hf:a/gguf:Q2_K"), 1, "hf:a/gguf:Q2_K: "),
        (("hf:a/gguf", "--precision", "int3"), 2, "--precision: got 'int3', expected "),
        (("hf:a/gguf", "--adapter", "b"), 2, "--adapter: b does not exist"),
        (("hf:a/gguf", "--mmproj", "b"), 2, "--mmproj: b does not exist"),
        (("hf:a/gguf", "--calibration", "b"), 2, "--calibration: b does not exist"),
        (("hf:a/gguf", "--drafter", "b"), 2, "--drafter: b does not exist"),
        (
            ("hf:a/gguf", "--weights", "b"),
            2,
            "--weights: got 'b', but MODEL names the weights, hf:",
        ),
    ],
)
def test_what_is_refused_is_said_in_one_line_and_not_downloaded(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    hub: LocalHub,
    baked: list[BakeOptions],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(monkeypatch, *arguments) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"hearth bake: {message}")
    assert not baked
    assert not hub.sent


def test_a_file_that_is_missing_here_ends_run_before_a_download(hub: LocalHub) -> None:
    with pytest.raises(UsageError, match=r"^--adapter: b does not exist[.]$"):
        find("hf:a/gguf", None, {"adapter": "b"})
    assert not hub.sent
