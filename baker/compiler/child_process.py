"""Compilers in processes of their own, which do not run longer than this process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hearthd.runtime.interrupts import at_interrupt, end_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# prctl(2): the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command without input; leaving the block kills it with the processes that it started.

    A Ctrl-C in a terminal does not reach it. On Linux, the end of this process, even by SIGKILL,
    or of the thread that started it kills it, too. The options are those of Popen.
    """
    parent = os.getpid()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _die_with_parent(parent),
        **options,
    ) as process:
        try:
            with at_interrupt(lambda: _kill(process)):
                yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        end_process(process, signal.SIGKILL)


def _die_with_parent(parent: int) -> None:
    """Runs in the new process before its program starts."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)
