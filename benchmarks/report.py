"""Where and with what was measured, and the file of figures. Linux only.

It knows the machine and the versions, and not what the figures are figures of: table.py shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from baker.pipeline.origin import hearth

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ = 1 << 30  # bytes that are read to measure the bandwidth, far more than the caches hold


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where it was measured; bandwidth in GB/s with `threads` threads, load as in uptime."""

    cpu: str
    cores: int
    threads: int
    read_bandwidth: float
    load_before: float

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.threads} threads, {self.read_bandwidth:.0f} GB/s read, "
            f"load {self.load_before:.1f} before"
        )


def look_at_machine(threads: int) -> Machine:
    """This machine, as it is now."""
    load = os.getloadavg()[0]
    return Machine(
        cpu=_cpu_name(),
        cores=physical_cores(),
        threads=threads,
        read_bandwidth=read_bandwidth(threads),
        load_before=load,
    )


def physical_cores() -> int:
    """The cores that this process may use, not counting a second thread of a core."""
    allowed = os.sched_getaffinity(0)
    topology = Path("/sys/devices/system/cpu")
    siblings = {
        (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text("utf-8")
        for cpu in allowed
        if (topology / f"cpu{cpu}/topology/thread_siblings_list").exists()
    }
    return len(siblings) or len(allowed)


def _cpu_name() -> str:
    """What the CPU calls itself."""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def read_bandwidth(threads: int, size: int = _READ) -> float:
    """GB/s at which that many threads read `size` bytes of memory, the best of 5.

    Each finds the largest of its share of the words: NumPy does that with the CPU's vectors and
    without the GIL, three times as fast in a core's cache as memory can be read.
    """
    parts = np.array_split(np.ones(size // 8, np.uint64), threads)

    def once() -> float:
        began = time.perf_counter()
        workers = [threading.Thread(target=part.max) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return size / (time.perf_counter() - began) / 1e9

    return max(once() for _ in range(5))


def versions() -> dict[str, str]:
    """Of Hearth, with the git revision where it is a checkout, and of IREE's runtime."""
    ours = hearth()
    if ours.revision is None:
        said = ours.version
    else:
        said = f"{ours.version}, {ours.revision[:10]}{', modified' if ours.modified else ''}"
    return {"hearth": said, "iree-base-runtime": metadata.version("iree-base-runtime")}


def spelled(versions: Mapping[str, str]) -> str:
    """Versions as a line of text."""
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def plots_folder(text: str) -> Path:
    """A folder for plots, as an option's type: what draws them is asked for before the work."""
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("matplotlib is not installed: pip install matplotlib")
    return Path(text)


def write_json(path: Path, machine: Machine, **data: Any) -> None:
    """Write the machine, the load after the last run, and what else there is to say."""
    whole = {"machine": asdict(machine), "load_after": os.getloadavg()[0], **data}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
