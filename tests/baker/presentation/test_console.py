"""NO_COLOR: a terminal gets no escape codes."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from typing_extensions import override

from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Terminal(StringIO):
    """A file that says it is a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def written(make: Callable[..., Console]) -> str:
    terminal = Terminal()
    console = make(file=terminal)
    with TerminalProgress(console).stage("trace the model", total=3) as advance:
        advance(1)
    console.print("failed", style="bold red")
    return terminal.getvalue()


def test_no_color_writes_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "trace the model" in written(open_console)
    assert "\x1b" not in written(open_console)
    assert "\x1b" in written(Console)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[1;31m" in written(open_console)
