"""Compilers in processes of their own, which do not run longer than this process."""

from __future__ import annotations

import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hearthd.runtime.system.interrupts import at_interrupt, end_process
from hearthd.runtime.system.operating_system import (
    KILL,
    apart_from_terminal,
    ending_with_this,
    kill_children,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command without input; leaving the block kills it with the processes that it started.

    A Ctrl-C in a terminal does not reach it. On Linux, the end of this process, even by SIGKILL,
    or of the thread that started it kills it, too. On Windows, the processes that it started are
    not killed. `options` are as in Popen. Other threads may multiply in NumPy with one thread only
    meanwhile: see `ending_with_this`.
    """
    options |= {"stdin": subprocess.DEVNULL, **apart_from_terminal(), **ending_with_this()}
    with subprocess.Popen(command, **options) as process:
        try:
            with at_interrupt(lambda: kill(process)):
                yield process
        finally:
            kill(process)


def killed_by(process: subprocess.Popen[bytes]) -> str:
    """Which signal ended a process that wrote no message, as a sentence; "" if none did."""
    status = process.returncode
    if status is None or status >= 0:
        return ""
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-status, f"signal {-status}")
    return f"the compiler was ended by {name}; free memory or disk space"


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child process, unless it has ended, with the processes that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            kill_children(process.pid)
        end_process(process, KILL)
