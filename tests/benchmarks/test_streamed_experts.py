"""The benchmark of experts that are larger than memory: its rounds and its refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import streamed_experts
from tests.server import tiny

if TYPE_CHECKING:
    from pathlib import Path


def test_rounds_of_decoding_and_plain_reads_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_bundle(tmp_path / "tiny")
    for name, value in {"PROMPT": 2, "WARM_STEPS": 1, "PAUSE": 0.0, "BLOCK": 512}.items():
        monkeypatch.setattr(streamed_experts, name, value)
    streamed_experts.measure(tmp_path / "tiny", 1, 1, 2)
    *rounds, median, share = capsys.readouterr().out.splitlines()
    assert len(rounds) == 2
    assert median.startswith("median: ")
    assert share.startswith("share: median ")
    with pytest.raises(SystemExit, match="expected at least 100003"):
        streamed_experts.measure(tmp_path / "tiny", 1, 100_000, 1)
