"""`hearth chat` on a pseudo-terminal, with a fake model."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

COMMAND = (sys.executable, "-W", "error", "-m", "tests.server.terminal.fake_terminal")
ENVIRONMENT = {
    **os.environ,
    "NO_COLOR": "1",
    "COLUMNS": "120",
    "TERM": "dumb",
    "HEARTH_HISTORY": "",
    "INPUTRC": os.devnull,
}


class Terminal:
    """A `hearth chat` on a pseudo-terminal, and what it has shown since it was last asked."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, "chat", ".", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=ENVIRONMENT | variables,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self._unread = b""
        self.welcome = ""

    def write(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, once readline waits: while it echoes a key, it misses the signal."""
        time.sleep(0.3)
        self.write("\x03")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read(self, most: int) -> bytes:
        if not self._unread and select.select([self.master], [], [], 0.1)[0]:
            self._unread = os.read(self.master, 4096)
        first, self._unread = self._unread[:most], self._unread[most:]
        return first

    def read_until(self, text: str, seconds: float = 60) -> str:
        shown = b""
        deadline = time.monotonic() + seconds
        while not shown.endswith(text.encode()):
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            shown += self.read(1)
        return shown.decode(errors="replace")


def _take_terminal() -> None:
    """Make the terminal on stdin this process's own, so that its Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def prompt_tokens(shown: str) -> int:
    match = re.search(r"(\d+) prompt tokens", shown)
    assert match, shown
    return int(match[1])
