"""A machine without the baker reads one line, from the command that was typed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import NotABundle
from hearthd.find_or_bake import find_or_bake
from tests.fake_bakes import Bakes

if TYPE_CHECKING:
    from pathlib import Path


def test_no_bake_is_started_without_the_baker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", bakes := Bakes())
    (file := tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(100))
    find_or_bake(str(file), tmp_path / "home", {})
    assert len(bakes.arguments) == 1
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(NotABundle, match=r"'safetensors' is not installed: .*hearthd\[bake\]"):
        find_or_bake(str(file), tmp_path / "other", {})
    assert len(bakes.arguments) == 1
