"""How a long task reports what it is doing: the protocol, for a terminal and for a program."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from hearthd.text.control_characters import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import Progress as ProgressBar

_JSON_INTERVAL = 0.25  # seconds


class Progress(Protocol):
    """Where the baker reports what it is doing."""

    def stage(self, name: str, total: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """Enter a stage of the work.

        The stage has `total` units, or an unknown number if 0. Call the function that the context
        manager returns with the number of units that are done since the last call.
        """

    def note(self, text: str) -> None:
        """Show a line that a user should know of."""


class TerminalProgress(Progress):
    """Show the running stage with its time; leave one line for each completed stage."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @override
    @contextlib.contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        start, name = time.perf_counter(), escape_controls(name)
        if self._console.is_terminal:
            with self._bar(total) as bar:
                task = bar.add_task(name, total=total or None)
                yield lambda units: bar.advance(task, units)
        else:
            yield lambda _: None
        line = f"{time.perf_counter() - start:6.1f} s  {name}"
        self._console.print(line, highlight=False, markup=False)

    @override
    def note(self, text: str) -> None:
        self._console.print(f"          {text}", highlight=False, markup=False, soft_wrap=True)

    def _bar(self, total: int) -> ProgressBar:
        from rich.progress import (
            BarColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as ProgressBar

        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        ]
        if total:
            columns.insert(2, BarColumn())
            columns += [TimeRemainingColumn(), TextColumn("left")]
        return ProgressBar(*columns, console=self._console, transient=True)


class JsonProgress(Progress):
    """Print JSON lines: the stage with its units, and notes.

    A line has `stage`, `total` and `completed`, or `note`. A stage has at most four lines per
    second, and one at its end.
    """

    @override
    @contextlib.contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        completed, printed = 0, time.monotonic()

        def advance(units: int) -> None:
            nonlocal completed, printed
            completed += units
            if time.monotonic() - printed >= _JSON_INTERVAL:
                printed = time.monotonic()
                print_json(stage=name, total=total, completed=completed)

        print_json(stage=name, total=total, completed=0)
        yield advance
        print_json(stage=name, total=total, completed=total)

    @override
    def note(self, text: str) -> None:
        print_json(note=text)


def print_json(**fields: object) -> None:
    """Print a line with a JSON object."""
    print(json.dumps(fields), flush=True)  # noqa: T201
