"""The memory that the decoding of an image takes: of Linux alone."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from hearthd.server.images.decoding import decoded
from hearthd.text.errors import InvalidRequest

_POLL = 0.002  # seconds


def peak_memory(data: bytes) -> int:
    """Bytes that decoding takes more than this process has, with the process that it starts."""
    Path("/proc/self/clear_refs").write_text("5")
    before, done = _status(os.getpid(), "VmRSS"), threading.Event()
    child = [0]
    watch = threading.Thread(target=_watch, args=(threading.get_native_id(), done, child))
    watch.start()
    with contextlib.suppress(InvalidRequest):
        decoded(data, "image")
    done.set()
    watch.join()
    return max(_status(os.getpid(), "VmHWM") - before, *child)


def _watch(thread: int, done: threading.Event, peak: list[int]) -> None:
    """Set `peak` to the most bytes of this process and a child of a thread, while both run."""
    children = Path(f"/proc/self/task/{thread}/children")
    before = _status(os.getpid(), "VmRSS")
    while not done.wait(_POLL):
        for child in children.read_text().split():
            with contextlib.suppress(OSError, IndexError):  # it has ended
                # Until its program starts, the child has the memory of this process.
                if b"webp_process" not in Path(f"/proc/{child}/cmdline").read_bytes():
                    continue
                size = _status(int(child), "VmHWM") + _status(os.getpid(), "VmRSS") - before
                peak[0] = max(peak[0], size)


def _status(process: int, name: str) -> int:
    line = Path(f"/proc/{process}/status").read_text().partition(f"{name}:")[2]
    return 1024 * int(line.split()[0])
