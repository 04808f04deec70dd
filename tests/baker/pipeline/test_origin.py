"""What a manifest says of the Hearth that baked it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hearthd.baker.pipeline.origin import hearth

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_provenance_names_the_revision_of_the_checkout() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert hearth().revision == head.stdout.strip()
