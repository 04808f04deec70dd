"""How a long task reports what it is doing: the protocol, and its implementation for a terminal."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import Progress as ProgressBar


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
        start = time.perf_counter()
        if self._console.is_terminal:
            with self._bar(total) as bar:
                task = bar.add_task(name, total=total or None)
                yield lambda units: bar.advance(task, units)
        else:
            yield lambda _: None
        self._console.print(f"{time.perf_counter() - start:6.1f} s  {name}", highlight=False)

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

        columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        if total:
            columns.insert(2, BarColumn())
            columns += [TimeRemainingColumn(), TextColumn("left")]
        return ProgressBar(*columns, console=self._console, transient=True)
