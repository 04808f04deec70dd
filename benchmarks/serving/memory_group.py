"""A process in a control group of its own, with a limit on its memory. Linux, as root.

Version 1 and 2 of control groups are known; swap counts as memory. A group is made below the top of
the hierarchy and is gone after the block.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP = Path("/sys/fs/cgroup")
_PATIENCE = 10  # seconds for the last process to be gone


class CannotConfine(Exception):
    """No group can be made here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A control group, by its folder; `version` is 1 or 2."""

    folder: Path
    version: int

    def inside(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command, run in the group."""
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh", *command)

    def peak(self) -> int:
        """The most bytes that the group has had by now, pages of files included."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return int((self.folder / name).read_text("ascii"))

    def killed(self) -> int:
        """How many of its processes the system has killed for lack of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        lines = (self.folder / name).read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def group(limit: int) -> Iterator[Group]:
    """A group of at most `limit` bytes; raises CannotConfine."""
    limit = -(-limit // mmap.PAGESIZE) * mmap.PAGESIZE  # else rounded down by the system
    version = 2 if (_TOP / "cgroup.controllers").exists() else 1
    top = _TOP if version == 2 else _TOP / "memory"
    made = Group(folder=top / f"hearth-{os.getpid()}", version=version)
    names = ("memory.max", "memory.swap.max")
    limits = {names[0]: limit, names[1]: 0}
    if version == 1:
        # In this order: the second may not be below the first.
        limits = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
    try:
        made.folder.mkdir()
        for name, size in limits.items():
            if (made.folder / name).exists() or name == next(iter(limits)):
                (made.folder / name).write_text(str(size), "ascii")
    except OSError as error:
        with contextlib.suppress(OSError):
            made.folder.rmdir()
        raise CannotConfine(f"no control group with a limit can be made here: {error}") from error
    try:
        yield made
    finally:
        _remove(made.folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
