"""Every benchmark says in one sentence what is missing."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.inputs import existing_bundle

if TYPE_CHECKING:
    from pathlib import Path

BUNDLE = "missing: not a bundle: there is no such path"
PATH = "missing does not exist"
COMMANDS = {
    "adapters missing": BUNDLE,
    "decode --alone missing": PATH,
    "drafts.drafter_speed missing": BUNDLE,
    "drafts.drafter_texts answers missing": BUNDLE,
    "expert_overlap missing": PATH,
    "gguf_types missing": PATH,
    "images missing a.png": BUNDLE,
    "memory_contract missing": BUNDLE,
    "drafts.replayed_drafts missing": BUNDLE,
    "serve missing": BUNDLE,
    "drafts.speculation missing": BUNDLE,
    "speech missing a.wav": BUNDLE,
    "streamed_experts missing": BUNDLE,
    "synthetic_weights missing": PATH,
    "tower_divergence missing": BUNDLE,
    "drafts.verify_cost missing": BUNDLE,
    "wide_speech missing": PATH,
    "wide_weights missing": PATH,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_input_is_one_sentence(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = command.split()
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert COMMANDS[command] in last


def test_a_folder_that_is_not_a_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a bundle"):
        existing_bundle(str(tmp_path))
