"""Run a process in a control group with a memory limit. Linux only, as root.

Supports versions 1 and 2 of control groups; swap counts as memory. The group is a child of the root
group and is removed after the block.
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
_TIMEOUT = 10  # seconds for the last process to end


class NoControlGroup(Exception):
    """A control group cannot be created; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A control group with its folder; `version` is 1 or 2."""

    folder: Path
    version: int

    def inside(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command, run in the group."""
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh", *command)

    def peak(self) -> int:
        """The peak memory of the group so far in bytes, including pages of files."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return int((self.folder / name).read_text("ascii"))

    def killed(self) -> int:
        """The number of its processes that the system killed for lack of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        lines = (self.folder / name).read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def group(limit: int) -> Iterator[Group]:
    """A group of at most `limit` bytes; raises NoControlGroup."""
    limit = -(-limit // mmap.PAGESIZE) * mmap.PAGESIZE  # the system would round down
    version = 2 if (_TOP / "cgroup.controllers").exists() else 1
    top = _TOP if version == 2 else _TOP / "memory"
    new_group = Group(folder=top / f"hearth-{os.getpid()}", version=version)
    names = ("memory.max", "memory.swap.max")
    limits = {names[0]: limit, names[1]: 0}
    if version == 1:
        # The order matters: the second limit may not be below the first.
        limits = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
    try:
        new_group.folder.mkdir()
        for name, size in limits.items():
            if (new_group.folder / name).exists() or name == next(iter(limits)):
                (new_group.folder / name).write_text(str(size), "ascii")
    except OSError as error:
        with contextlib.suppress(OSError):
            new_group.folder.rmdir()
        raise NoControlGroup(
            f"cannot create a control group with a memory limit: {error}"
        ) from error
    try:
        yield new_group
    finally:
        _remove(new_group.folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
