"""`hearth verify` prints lines for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from hearthd.baker.checks import verification
from hearthd.baker.checks.cli import verify

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from rich.console import Console


def test_lines_that_are_wider_than_the_terminal_are_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = " ".join(["word"] * 50)

    def verified(_bundle: Path, console: Console, *_others: Any) -> dict[str, Any]:
        console.print(line)
        return {}

    monkeypatch.setattr(verification, "verify", verified)
    assert CliRunner().invoke(verify, [str(tmp_path)]).output == f"{line}\n"
