"""What the benchmarks write: the machine, a table of medians with ratios, a file of figures.

It knows figures by name, one dictionary a round, and not what they are figures of. Linux only.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 120  # of a table in a file or a pipe

Rounds = list[dict[str, float]]


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


@dataclass(frozen=True)
class Figure:
    """A row of the table: the figure's name in a round, its label with the unit, what is better."""

    name: str
    label: str
    more_is_better: bool = False


def look_at_machine(threads: int) -> Machine:
    """This machine, as it is now."""
    load = os.getloadavg()[0]
    return Machine(
        cpu=_cpu_name(),
        cores=physical_cores(),
        threads=threads,
        read_bandwidth=_read_bandwidth(threads),
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


def _read_bandwidth(threads: int) -> float:
    """GB/s of summing 1 GiB, far more than the caches hold, with that many threads; best of 5."""
    parts = np.array_split(np.ones(1 << 28, np.float32), threads)

    def once() -> float:
        began = time.perf_counter()
        workers = [threading.Thread(target=part.sum) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(part.nbytes for part in parts) / (time.perf_counter() - began) / 1e9

    return max(once() for _ in range(5))


def print_table(title: str, figures: Sequence[Figure], measured: Mapping[str, Rounds]) -> None:
    """Medians with the smallest and largest of the rounds, and the first's over the second's."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(Column(no_wrap=True), box=None, padding=(0, 1))
    for name in measured:
        table.add_column(name, justify="right")
        table.add_column("min to max", style="dim")
    if len(measured) == 2:
        table.add_column("ratio", justify="right")
    for figure in figures:
        table.add_row(*_cells(figure, list(measured.values())))
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)
    if len(measured) == 2:
        console.print(f"ratio: {' / '.join(measured)}; * less is better", highlight=False)


def _cells(figure: Figure, sides: list[Rounds]) -> list[str]:
    columns = [[figures[figure.name] for figures in rounds] for rounds in sides]
    medians = [statistics.median(column) for column in columns]
    cells = [figure.label]
    for median, column in zip(medians, columns, strict=True):
        cells += [f"{median:.4g}", f"{min(column):.4g} to {max(column):.4g}"]
    if len(medians) == 2 and medians[1]:
        cells.append(f"{medians[0] / medians[1]:.2f}{' ' if figure.more_is_better else '*'}")
    return cells


def write_json(path: Path, machine: Machine, **data: Any) -> None:
    """Write the machine, the load after the last run, and what else there is to say."""
    whole = {"machine": asdict(machine), "load_after": os.getloadavg()[0], **data}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
