"""The memory that this process may use: limits of its control groups, and free memory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.runtime.system.operating_system import physical_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")
# Version 1 has no word for "no limit": it reports the largest number of whole pages.
_UNLIMITED = 2**62


def available_memory() -> int:
    """Bytes that this process and the cache of its files can have without swapping.

    The lowest limit of its control groups, or what Linux estimates as available; on other systems
    the memory of the machine.
    """
    return min([_available(), *(limit for _, limit in control_group_limits())])


def _available() -> int:
    with contextlib.suppress(OSError):
        for line in _MEMORY.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return physical_memory()


def control_group_limits() -> Iterator[tuple[Path, int]]:
    """The limits of this process's control group and of all its parents: files, and bytes."""
    with contextlib.suppress(OSError):
        for line in PROCESS_CGROUPS.read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, name = CGROUPS, "memory.max"
            elif "memory" in controllers.split(","):
                root, name = CGROUPS / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = root / path.lstrip("/")
            # In a container the group may be mounted as the root, but be named by the host's path.
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _limit_in(folder / name)


def _limit_in(file: Path) -> Iterator[tuple[Path, int]]:
    with contextlib.suppress(OSError):
        text = file.read_text("ascii").strip()
        if text.isdecimal() and int(text) < _UNLIMITED:
            yield file, int(text)
