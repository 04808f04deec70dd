"""Run libFuzzer on groups of readers, and update the project's corpus from its inputs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROOT = Path(__file__).parents[3]
KERNELS = "kernels"
# The runtime of ASan, with libFuzzer, which Atheris brings for libraries in C.
_RUNTIME = "asan_with_fuzzer.so"
_ASAN = "detect_leaks=0:detect_stack_use_after_return=0"


def run(groups: Sequence[str], minutes: float, keep: Path, say: Callable[[str], None]) -> int:
    """Fuzz one group after the other; the exit code, 1 if anything was found.

    `minutes` of CPU time are shared by the groups.
    """
    keep.mkdir(parents=True, exist_ok=True)
    for group in groups:
        before = _cpu_seconds()
        seconds = max(1, round(60 * minutes / len(groups)))
        command = [
            *(sys.executable, "-m", "tools.fuzz.guided.coverage_process"),
            *(group, str(keep), str(seconds)),
        ]
        with tempfile.TemporaryDirectory(prefix="hearth-fuzz-") as temporary:
            log = keep / f"{group}.log"
            with log.open("ab") as file:
                code = subprocess.run(
                    command,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    check=False,
                    cwd=_ROOT,
                    env={**os.environ, "TMPDIR": temporary, **_sanitizers(group)},
                ).returncode
        used = _cpu_seconds() - before
        with (keep / "cpu_seconds.tsv").open("a", encoding="ascii") as file:
            file.write(f"{group}\t{used:.0f}\n")
        inputs = len(list((keep / group).iterdir())) if (keep / group).exists() else 0
        say(f"{group:12} {used:6.0f} s of CPU time, {inputs} inputs, exit code {code}; see {log}")
    found = sorted(path for path in (keep / "found").glob("*") if path.suffix != ".txt")
    for path in found:
        say(f"found: {path}")
    return int(bool(found))


def _sanitizers(group: str) -> dict[str, str]:
    """The environment of a process that loads kernels under ASan and UBSan."""
    if group != KERNELS:
        return {}
    import atheris

    return {"LD_PRELOAD": str(Path(atheris.path()) / _RUNTIME), "ASAN_OPTIONS": _ASAN}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
