"""Standard input as a prompt, or as the text that a prompt is about."""

import os
import stat
import sys
from collections.abc import Callable
from threading import Timer

STDIN = "-"  # as PROMPT
_PATIENCE = 3.0  # seconds without the end of the input, after which a user is told


def stdin_is_piped() -> bool:
    """Whether standard input is a pipe, or a file from its beginning.

    A file that is read already belongs to a loop over its lines. A socket, as of ssh and Node.js,
    may stay open without data.
    """
    try:
        number = sys.stdin.fileno()
    except OSError:  # replaced by Python code
        return False
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and os.lseek(number, 0, os.SEEK_CUR) == 0)


def read_stdin(on_wait: Callable[[], None]) -> str:
    """All of standard input, without the last line end; bytes that are not UTF-8 as surrogates.

    `on_wait` is called once, in a thread, if the input does not end.
    """
    timer = Timer(_PATIENCE, on_wait)
    timer.daemon = True
    timer.start()
    try:
        text = sys.stdin.buffer.read().decode(errors="surrogateescape")
    finally:
        timer.cancel()
    return text.removesuffix("\n").removesuffix("\r")
