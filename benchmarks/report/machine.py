"""The machine and the versions that figures were measured with, and the JSON file. Linux only."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.baker.memory_bandwidth import physical_cores, read_bandwidth
from hearthd.baker.pipeline.origin import hearth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.baker.presentation.table import Table


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The CPU, its read bandwidth in GB/s with `threads` threads, and the load as in uptime."""

    cpu: str
    cores: int
    threads: int
    read_bandwidth: float
    load_before: float

    @override
    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.threads} threads, {self.read_bandwidth:.0f} GB/s read, "
            f"load {self.load_before:.1f} at the start"
        )


def describe_machine(threads: int) -> Machine:
    """Describe this machine; takes about a second, for the bandwidth."""
    load = os.getloadavg()[0]
    return Machine(
        cpu=_cpu_name(),
        cores=physical_cores(),
        threads=threads,
        read_bandwidth=read_bandwidth(threads),
        load_before=load,
    )


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def versions() -> dict[str, str]:
    """The versions of Hearth, with its git revision in a checkout, and of IREE's runtime."""
    version = hearth()
    text = version.version
    if version.revision is not None:
        text += f", {version.revision[:10]}{', modified' if version.modified else ''}"
    return {"hearth": text, "iree-base-runtime": metadata.version("iree-base-runtime")}


def versions_line(versions: Mapping[str, str]) -> str:
    """The versions on one line."""
    return "; ".join(f"{name} {version}" for name, version in versions.items())


def write_json(
    path: Path, machine: Machine, used: Mapping[str, str], tables: Sequence[Table], **data: Any
) -> None:
    """Write the figures of a benchmark, from which `results_page` makes a page.

    used    versions of all engines
    tables  as they are printed
    data    the figures of each round
    """
    record = {
        "command": [f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]],
        "machine": asdict(machine),
        "versions": dict(used),
        "load_after": os.getloadavg()[0],
        "tables": [
            {"title": table.title, "headings": table.headings, "rows": table.rows}
            for table in tables
        ],
        **data,
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
