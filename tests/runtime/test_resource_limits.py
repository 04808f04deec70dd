"""The limits of children."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from hearthd.runtime.system.resource_limits import limit_child

_ALLOCATE = "input(); b = bytearray(100_000_000); print(len(b))"


def _limited(code: str, *, memory: int = 10**9, seconds: int = 60) -> tuple[int, str]:
    """The exit status and the output of a child that is limited before it goes on."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit_child(child.pid, memory=memory, seconds=seconds)
    output = "".join(child.communicate("\n"))
    return child.returncode, output


@pytest.mark.parametrize(("memory", "expected"), [(150, "100000000"), (100, "MemoryError")])
def test_a_child_has_the_memory_of_its_limit(memory: int, expected: str) -> None:
    _, output = _limited(_ALLOCATE, memory=memory * 10**6)
    assert expected in output


def test_a_child_ends_after_its_seconds_of_a_core() -> None:
    status, _ = _limited("input()\nwhile True: pass", seconds=1)
    assert status == -signal.SIGXCPU


def test_a_hard_limit_is_not_raised() -> None:
    code = (
        "import resource, subprocess, sys;"
        "from hearthd.runtime.system.resource_limits import limit_child;"
        "resource.setrlimit(resource.RLIMIT_DATA, (10**9, 10**9));"
        "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE);"
        "limit_child(child.pid, memory=10**10, seconds=9);"
        "print(resource.prlimit(child.pid, resource.RLIMIT_DATA)); child.communicate()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "(1000000000, 1000000000)\n"
