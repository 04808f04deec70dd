"""A bundle that was not baked here and is not signed says so when its code first runs here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hearthd.bundle import bundle_home, digest, known_bundles, write_manifest
from hearthd.bundle.known_bundles import FILE, remember, warn_if_unknown
from hearthd.runtime import open_bundle
from tests.fake_runtime import FakeRuntime
from tests.server import fakes

MANIFEST = replace(fakes.manifest_of(FakeRuntime(vocab_size=300, context=64)), files=())
BUNDLE = Path("from-a-stranger")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    monkeypatch.setattr(known_bundles, "_warned", set())
    return tmp_path / "home"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [
        record.getMessage() for record in caplog.records if record.name == known_bundles.__name__
    ]
    caplog.clear()
    return said


def test_a_stranger_is_announced_once(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_if_unknown(BUNDLE, MANIFEST)
    (said,) = warnings(caplog)
    assert said.startswith(
        "from-a-stranger: this bundle was not baked on this machine, and no known"
    )
    assert "hearth verify --key" in said
    assert (home / FILE).read_text() == f"{digest(MANIFEST)}\n"
    monkeypatch.setattr(known_bundles, "_warned", set())  # another process
    warn_if_unknown(BUNDLE, MANIFEST)
    assert not warnings(caplog)
    warn_if_unknown(BUNDLE, replace(MANIFEST, context=32))
    assert len(warnings(caplog)) == 1


def test_a_bundle_that_was_baked_or_verified_is_not_announced(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        remember(MANIFEST)
    warn_if_unknown(BUNDLE, MANIFEST)
    assert not warnings(caplog)
    assert (home / FILE).read_text().count("\n") == 1


def test_without_a_home_it_is_announced_once_per_process(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file, so that there can be no folder")
    for expected in (1, 0):
        warn_if_unknown(BUNDLE, MANIFEST)
        assert len(warnings(caplog)) == expected
    monkeypatch.setattr(known_bundles, "_warned", set())
    warn_if_unknown(BUNDLE, MANIFEST)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("signed", [False, True])
def test_an_unknown_bundle_is_announced_before_its_code_is_loaded(
    signed: bool,
    home: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_bundle, "best_program", lambda _: None)
    monkeypatch.setattr(open_bundle, "require_signed_manifest", lambda *_: None)
    said = open_bundle.check_and_load(
        tmp_path,
        MANIFEST,
        lambda _: warnings(caplog),
        keys=["key"] if signed else [],  # type: ignore[list-item]
    )
    assert len(said) == (0 if signed else 1)
    assert digest(MANIFEST) in (home / FILE).read_text()


def test_a_command_says_it_in_one_line_on_stderr(home: Path) -> None:
    code = f"""
from pathlib import Path
from hearthd.bundle import known_bundles, read_manifest
bundle = Path({str(home.parent)!r})
known_bundles.warn_if_unknown(bundle, read_manifest(bundle))
"""
    write_manifest(home.parent, MANIFEST)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.startswith(f"{home.parent}: this bundle was not baked on this machine")
    assert done.stderr.count("\n") == 1
