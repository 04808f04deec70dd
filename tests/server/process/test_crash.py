"""What a server says when a signal ends it, such as SIGBUS: a mapped file became shorter."""

from __future__ import annotations

import signal
import subprocess
import sys

_CRASH = """
import os, signal
from hearthd.server import cli
cli.with_bundles = lambda *_: os.kill(os.getpid(), signal.SIGBUS)
cli.app(["bundle", "--port", "0"])
"""


def test_a_crash_is_reported() -> None:
    command = [sys.executable, "-c", _CRASH]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in ended.stderr
    assert " in run\n" in ended.stderr


def test_a_server_may_have_no_stderr() -> None:
    command = ["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, _CRASH]
    ended = subprocess.run(command, check=False)
    assert ended.returncode == 128 + signal.SIGBUS
