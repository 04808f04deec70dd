"""Limits that the system sets for this process and its children. Windows has none of them."""

from __future__ import annotations

import contextlib
import signal
import sys

if sys.platform != "win32":
    import resource

# macOS refuses a limit of open files above OPEN_MAX of its sys/syslimits.h.
_MACOS_MAX_FILES = 10240


def soft_limit(name: str) -> int | None:
    """The soft limit of this process with a name such as RLIMIT_AS; None without a limit."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files(target: int) -> int:
    """Raise the limit on open files to `target` if it is lower, as far as allowed; returns it.

    No limit, as on Windows, counts as `target`.
    """
    if sys.platform == "win32":
        return target
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return target
    raised = _at_most(hard, target)
    if sys.platform == "darwin":
        raised = min(raised, _MACOS_MAX_FILES)
    if soft < raised:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may not allow it
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return soft


def limit_child(process: int, *, memory: int, seconds: int) -> None:
    """Limit the bytes that a child allocates, and its seconds of a core. Only Linux can."""
    if sys.platform == "linux":
        for limited, value in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, seconds)):
            _, hard = resource.getrlimit(limited)
            resource.prlimit(process, limited, (_at_most(hard, value), hard))


def has_spent_its_time(status: int) -> bool:
    """Whether a child with this exit status ended at the limit of its seconds of a core."""
    return sys.platform == "linux" and status == -signal.SIGXCPU


def _at_most(hard: int, value: int) -> int:
    """A soft limit: `value`, or the hard limit if that is lower."""
    return value if sys.platform == "win32" or hard == resource.RLIM_INFINITY else min(hard, value)
