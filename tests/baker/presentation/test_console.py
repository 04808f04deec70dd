"""The console of commands: no escape codes with NO_COLOR, and how long a stage takes."""

from __future__ import annotations

import re
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


def test_a_stage_of_known_length_shows_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", written(open_console))
    assert re.search(r"trace the model \S+ 0:00:0\d [-\d]:\S+ left", plain)


def test_texts_of_files_are_neither_markup_nor_escape_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = StringIO()
    console = open_console(file=file)
    progress = TerminalProgress(console)
    with progress.stage("read [a] \x1b]0;title\x07 [/b]"):
        pass
    progress.note("\x1b[2J")
    console.print("\x1b[2J")
    assert r"read [a] \x1b]0;title\x07 [/b]" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_a_running_stage_shows_its_name_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with TerminalProgress(open_console(file=file)).stage("read [a] \x1b]0;title\x07 [/b]"):
        pass
    assert r"read [a] \x1b]0;title\x07 [/b]" in file.getvalue()
    assert "\x1b]0" not in file.getvalue()
