"""How much memory this process may take, and who says so.

    --max-memory, else the bundle's own limit    what was asked for
    the control group's limit, version 1 or 2    what a container or a service may take
    RLIMIT_AS, RLIMIT_DATA                       what `ulimit` allows

The lowest counts, and says how many slots are opened and how large the prefix cache may be. It
knows limits of Linux; what serving takes is models/bundle/memory_sum.py's to say.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import Admitted, TooLittle, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from models.bundle import LanguageManifest

log = logging.getLogger(__name__)

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
# Version 1 says "none" by the largest number of whole pages.
_NONE = 2**62
_RESOURCES = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """So many bytes, and where that was said."""

    bytes: int
    source: str


def admit(manifest: LanguageManifest, *, asked: int | None, prefix_cache: int) -> Admitted:
    """How much of a bundle's slots and of a prefix cache fits; raises TooLittle.

    `asked` is the operator's limit in bytes.
    """
    limit = memory_limit(asked, manifest.max_memory)
    memory, slots = manifest.memory, manifest.slots
    if limit is None:
        log.info("memory: up to %s; there is no limit", memory.formula(slots, prefix_cache))
        return Admitted(slots=slots, prefix_cache=prefix_cache)
    try:
        admitted = memory.admit(limit.bytes, slots=slots, prefix_cache=prefix_cache)
    except TooLittle as error:
        raise TooLittle(
            f"{error} (the limit is {limit.source}): raise it, or bake with a shorter --context "
            "or a smaller --precision"
        ) from None
    log.info(
        "memory: up to %s, of %s MB (%s): %d of %d slots",
        memory.formula(admitted.slots, admitted.prefix_cache),
        megabytes(limit.bytes),
        limit.source,
        admitted.slots,
        slots,
    )
    return admitted


def memory_limit(asked: int | None, baked: int | None) -> Limit | None:
    """The lowest limit that holds for this process, or None.

    `asked` is what the operator says, in place of the bundle's own limit, `baked`.
    """
    limits = [*_cgroup_limits(_CGROUPS, _OWN_CGROUPS), *_resource_limits()]
    if asked is not None:
        limits.append(Limit(bytes=asked, source="--max-memory"))
    elif baked is not None:
        limits.append(Limit(bytes=baked, source="bake --max-memory"))
    return min(limits, key=lambda limit: limit.bytes, default=None)


def _cgroup_limits(mounted: Path, own: Path) -> Iterator[Limit]:
    """The limits of this process' control group and of all those that it lies in."""
    with contextlib.suppress(OSError):
        for line in own.read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, name = mounted, "memory.max"
            elif "memory" in controllers.split(","):
                root, name = mounted / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = root / path.lstrip("/")
            # A container may see its own group as the root, under the name that the host has.
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _limit_in(folder / name)


def _limit_in(file: Path) -> Iterator[Limit]:
    with contextlib.suppress(OSError):
        text = file.read_text("ascii").strip()
        if text.isdecimal() and int(text) < _NONE:
            yield Limit(bytes=int(text), source=str(file))


def _resource_limits() -> Iterator[Limit]:
    for source, which in _RESOURCES.items():
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            yield Limit(bytes=soft, source=source)
