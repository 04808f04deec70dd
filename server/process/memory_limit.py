"""The memory limit of this process, and what fits in it: slots and prefix cache.

    --max-memory, else the limit given to `hearth bake`    set by the operator
    memory limit of the control group, version 1 or 2      set for a container or service
    RLIMIT_AS, RLIMIT_DATA                                 set by `ulimit`

The lowest limit counts. bundle/memory_sum.py computes the memory that serving takes.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.bundle import Admitted, NotEnoughMemory, megabytes
from hearthd.runtime.operating_system import soft_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.bundle import LanguageManifest

log = logging.getLogger(__name__)

_CGROUPS = Path("/sys/fs/cgroup")
_PROCESS_CGROUPS = Path("/proc/self/cgroup")
# Version 1 has no word for "no limit": it reports the largest number of whole pages.
_UNLIMITED = 2**62
_RESOURCES = {"ulimit -v": "RLIMIT_AS", "ulimit -d": "RLIMIT_DATA"}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit in bytes, and where it is set."""

    bytes: int
    source: str


def admit(
    manifest: LanguageManifest, *, max_memory: int | None, prefix_cache: int, reserved: int = 0
) -> Admitted:
    """Compute how many of a bundle's slots and how much prefix cache fit; raises NotEnoughMemory.

    `max_memory` is the operator's limit, `prefix_cache` the largest size of the cache, and
    `reserved` what other models of this process take, all in bytes.
    """
    limit = memory_limit(max_memory, manifest.max_memory, reserved)
    memory, slots = manifest.memory, manifest.slots
    if limit is None:
        log.info("memory: at most %s; no limit is set", memory.formula(slots, prefix_cache))
        return Admitted(slots=slots, prefix_cache=prefix_cache)
    try:
        admitted = memory.admit(limit.bytes, slots=slots, prefix_cache=prefix_cache)
    except NotEnoughMemory as error:
        raise NotEnoughMemory(
            f"{error} (the limit is {limit.source}); raise it, or bake with a shorter --context "
            "or a smaller --precision"
        ) from None
    log.info(
        "memory: at most %s of %s MB (limit: %s); %d of %d slots",
        memory.formula(admitted.slots, admitted.prefix_cache),
        megabytes(limit.bytes),
        limit.source,
        admitted.slots,
        slots,
    )
    return admitted


def memory_limit(max_memory: int | None, baked: int | None, reserved: int = 0) -> Limit | None:
    """The lowest limit of this process, or None.

    `max_memory` is the operator's limit in bytes. It replaces `baked`, the bundle's limit. Other
    models of this process take `reserved` bytes, which the bundle's limit does not include.
    """
    limits = [*_cgroup_limits(_CGROUPS, _PROCESS_CGROUPS), *_resource_limits()]
    if max_memory is not None:
        limits.append(Limit(bytes=max_memory, source="--max-memory"))
    limits = [Limit(bytes=limit.bytes - reserved, source=limit.source) for limit in limits]
    if max_memory is None and baked is not None:
        limits.append(Limit(bytes=baked, source="hearth bake --max-memory"))
    return min(limits, key=lambda limit: limit.bytes, default=None)


def _cgroup_limits(mount: Path, process_cgroups: Path) -> Iterator[Limit]:
    """The limits of this process's control group and of all its parents."""
    with contextlib.suppress(OSError):
        for line in process_cgroups.read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, name = mount, "memory.max"
            elif "memory" in controllers.split(","):
                root, name = mount / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = root / path.lstrip("/")
            # In a container the group may be mounted as the root, but be named by the host's path.
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _limit_in(folder / name)


def _limit_in(file: Path) -> Iterator[Limit]:
    with contextlib.suppress(OSError):
        text = file.read_text("ascii").strip()
        if text.isdecimal() and int(text) < _UNLIMITED:
            yield Limit(bytes=int(text), source=str(file))


def _resource_limits() -> Iterator[Limit]:
    for source, limit in _RESOURCES.items():
        if (soft := soft_limit(limit)) is not None:
            yield Limit(bytes=soft, source=source)
