"""One process of libFuzzer with the coverage of this project's Python: `python -m tools.fuzz`.

    python -m tools.fuzz.guided.coverage_process GROUP FOLDER SECONDS

FOLDER/GROUP has the inputs, FOLDER/found what was found: each defect once, by its traceback.
SECONDS and the limit of an input are CPU time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

import atheris

from tools.fuzz.guided.coverage import KERNELS

with atheris.instrument_imports(include=["hearthd"]):
    from hearthd.text.templates import template_budget
    from tools.fuzz.guided import coverage_inputs
    from tools.fuzz.guided.cpu_limits import CpuTimeExceeded, cpu_limit

_TEMPLATE_SECONDS = 0.05  # else most of the time is waited for templates
_INPUT_SECONDS = 60  # of CPU time
_HANG_SECONDS = 3600  # of wall time, for an input that waits for ever; the process may be stopped
_MAX_BYTES = 1 << 16
_MAX_MEMORY = 3072  # MiB


class Findings:
    """The defects of a group's readers: an input and a traceback of each, once."""

    def __init__(self, group: str, folder: Path) -> None:
        self.path = folder / group
        self._seen: set[str] = set()

    def add(self, data: bytes, victim: coverage_inputs.Victim, error: BaseException) -> None:
        """Write an input and the traceback of its error, if no other input had this one."""
        origin = "".join(traceback.format_tb(error.__traceback__)[-2:]) + type(error).__name__
        name = hashlib.sha1(origin.encode()).hexdigest()[:12]
        if name in self._seen:
            return
        self._seen.add(name)
        text = "".join(traceback.format_exception(error))
        Path(f"{self.path}-{name}").write_bytes(data)
        Path(f"{self.path}-{name}.txt").write_text(f"{victim.reader.name} {victim.file}\n{text}")


def main(group: str, folder: Path, seconds: int) -> NoReturn:
    """Fuzz a group's readers; ends the process."""
    inputs, found = _prepare(group, folder)
    findings = Findings(group, found)
    runs = 0

    def test(data: bytes) -> None:
        nonlocal runs
        if time.process_time() > seconds:
            sys.stderr.write(f"done: {runs} inputs in {time.process_time():.0f} s of CPU time\n")
            sys.stderr.flush()
            os._exit(0)  # libFuzzer ends at a wall time only
        runs += 1
        victim, content = coverage_inputs.victim_of(group, data)
        try:
            with cpu_limit(_INPUT_SECONDS):
                victim.read(content)
        except (Exception, CpuTimeExceeded) as error:
            findings.add(data, victim, error)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        changed = coverage_inputs.mutated(
            group, data, seed, lambda content: atheris.Mutate(content, max_size - 1)
        )
        return changed[:max_size]

    options = {
        "timeout": _HANG_SECONDS,
        "report_slow_units": _HANG_SECONDS,
        "rss_limit_mb": _MAX_MEMORY,
        "max_len": _MAX_BYTES,
        "artifact_prefix": f"{findings.path}-",
    }
    flags = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(inputs)], test, custom_mutator=mutate)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def _prepare(group: str, folder: Path) -> tuple[Path, Path]:
    """Write a group's first inputs and set limits; return the folders of inputs and findings."""
    if group == KERNELS:
        from tools.fuzz.guided import kernel_sanitizers

        libraries = kernel_sanitizers.build(folder / "libraries")
        coverage_inputs.add(kernel_sanitizers.reader(libraries), coverage_inputs.groups())
    inputs, found = folder / group, folder / "found"
    inputs.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    for data in coverage_inputs.seeds(group):
        (inputs / coverage_inputs.name_of(data)).write_bytes(data)
    logging.disable()
    warnings.simplefilter("ignore")  # of NumPy, on NaN values
    template_budget.MAX_SECONDS = _TEMPLATE_SECONDS
    return inputs, found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
