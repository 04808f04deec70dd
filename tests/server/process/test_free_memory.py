"""What the threads of a process free is reused by all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Threads that exist at the same time free 20 MB each, one after the other. A small block that is
# allocated last keeps the heap from being shortened.
_PROGRAM = """
import sys, threading
from pathlib import Path
from server.process.free_memory import share_free_memory

if sys.argv[1] == "shared":
    share_free_memory()
kept = []
size = len(sys.argv[0]) + 50_000  # no constant, which Python would share
turn = threading.Barrier(9)

def allocate(number):
    for current in range(8):
        turn.wait()
        if current == number:
            blocks = [b"." * size for _ in range(400)]
            kept.append(b"." * size)
            del blocks
    turn.wait()

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024

threads = [threading.Thread(target=allocate, args=(number,)) for number in range(8)]
before = anonymous()
for thread in threads:
    thread.start()
for _ in range(9):
    turn.wait()
print(anonymous() - before)
for thread in threads:
    thread.join()
"""


def grown(how: str) -> int:
    """How many bytes the process keeps."""
    command = [sys.executable, "-c", _PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_thread_frees_is_reused_by_others() -> None:
    assert grown("shared") < 50e6
