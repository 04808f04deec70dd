"""Samples of a server's memory, and the rule by which it is flat.

The first quarter of the run is the warm-up. Memory is flat if its median over the last quarter is
at most `LIMIT` above its median over the second quarter, and files and threads if their medians
have not grown by more than `MORE`. Medians ignore the short time in which a reload has two bundles
in memory.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 0.02
MORE = 2


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A process `seconds` after the start; memory in bytes.

    resident   pages in memory, pages of files too
    anonymous  pages in memory that belong to no file
    shared     proportional set size: pages of files count by the number of processes that use them
    """

    seconds: float
    resident: int
    anonymous: int
    shared: int
    files: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A measure's medians over the second and the last quarter; `flat` by the rule."""

    measure: str
    second: float
    last: float
    peak: float
    flat: bool


def sample(pid: int, seconds: float) -> Sample:
    """The state of a process; raises OSError if it has ended."""
    process = Path(f"/proc/{pid}")
    status = _table(process / "status")
    return Sample(
        seconds=seconds,
        resident=_bytes(status["VmRSS"]),
        anonymous=_bytes(status["RssAnon"]),
        shared=_bytes(_table(process / "smaps_rollup")["Pss"]),
        files=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
    )


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """What each measure has grown by."""
    count = len(samples)
    quarters = [samples[count * quarter // 4 : count * (quarter + 1) // 4] for quarter in (1, 3)]
    result = []
    for field in fields(Sample)[1:]:
        second, last = (
            statistics.median(asdict(sample)[field.name] for sample in quarter)
            for quarter in quarters
        )
        counted = field.name in ("files", "threads")
        result.append(
            Growth(
                measure=field.name,
                second=second,
                last=last,
                peak=max(asdict(sample)[field.name] for sample in samples),
                flat=last <= (second + MORE if counted else second * (1 + LIMIT)),
            )
        )
    return result


def _table(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _bytes(value: str) -> int:
    return int(value.split()[0]) * 1024
