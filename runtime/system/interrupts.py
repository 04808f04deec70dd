"""Ctrl-C and SIGTERM end a command at once: one line, exit status 130, nothing half-written.

A KeyboardInterrupt cannot do that: native code delays it, a library may discard it, and an import
shows it as a traceback. So the main thread stops where it is, and another thread undoes what is
unfinished and ends the process without Python's own shutdown.

SIGHUP ends a command, except a server, which starts although it is told to reload.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from hearthd.runtime.system import operating_system

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from types import FrameType

STATUS = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds that native code of the main thread may take before the end begins without it, and that
# the end may take.
_STOPS, _ENDS = 0.1, 10.0

_actions: list[Callable[[], str | None]] = []
_wake = -1  # the end of a pipe that wakes the other thread


@contextlib.contextmanager
def at_interrupt(action: Callable[[], str | None]) -> Iterator[None]:
    """If a signal ends the process in the block, run an action, the newest first.

    It runs in another thread while the code of the block stands still, possibly with locks, or in
    a system call. It may return a text that explains what to do, for the line that is printed.
    """
    _actions.append(action)
    try:
        yield
    finally:
        _actions.remove(action)


@contextlib.contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """In the block, Ctrl-C raises KeyboardInterrupt. It ends the process if it leaves the block."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, handler)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)


def end_process(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a child process, for an action, and wait until it has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            operating_system.end_child(process, number)


def end_on_signals(program: str) -> None:
    """From now on, end the process on SIGINT and SIGTERM, unless they are ignored.

    The line on stderr begins with `program`. Another handler may take the place of this one for a
    time: a server drains, and a chat cancels its answer. Call this in the main thread.
    """
    global _wake
    if _wake < 0:
        reading, _wake = operating_system.wake_pipe()
        restore = operating_system.terminal_modes()
        threading.Thread(target=_watch, args=(reading, program, restore), daemon=True).start()
        # The handlers of atexit run in reverse order. After the last one no signal is handled.
        atexit.register(_ignore)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    # Python writes the number of a signal at once, and calls its handler when native code returns.
    signal.set_wakeup_fd(_wake)


def outlive_hangups() -> None:
    """From now on, SIGHUP ends the process only if its terminal was closed, and not if ignored.

    A server handles the signal itself once it serves. Call this in the main thread.
    """
    number = operating_system.HANGUP
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return
    had_terminal = operating_system.has_terminal()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if had_terminal and not operating_system.has_terminal():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(number, handle)


def _ignore() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """The handler: wake the other thread, also if asyncio has taken the descriptor; stand still."""
    os.write(_wake, bytes([number]))
    time.sleep(_ENDS)
    os._exit(STATUS)


def _watch(reading: int, program: str, restore: Callable[[], None]) -> None:
    while True:
        number = os.read(reading, 1)[0]
        if signal.getsignal(number) is _stop:
            operating_system.wait_readable(reading, _STOPS)  # until the handler writes, too
            _end(program, restore)


def _end(program: str, restore: Callable[[], None]) -> NoReturn:
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # other threads may fail now
    texts = ["interrupted"]
    while _actions:
        with contextlib.suppress(Exception):
            texts.append(_actions.pop()() or "")
    shown = "\r\033[K\033[?25h" if os.isatty(stderr) else ""  # a bar may have hidden the cursor
    with contextlib.suppress(OSError):
        os.write(stderr, f"{shown}{program}: {'; '.join(filter(None, texts))}\n".encode())
    restore()  # the terminal may be reading a line
    os._exit(STATUS)
