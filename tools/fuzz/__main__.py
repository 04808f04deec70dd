"""`python -m tools.fuzz`: run every reader on damaged files, or compile random programs or models.

    python -m tools.fuzz --minutes 10
    python -m tools.fuzz --reader gguf --seed 4711 --runs 1
    python -m tools.fuzz --programs --minutes 60
    python -m tools.fuzz --models --minutes 60
    python -m tools.fuzz --coverage http --minutes 60

Each reader runs in a process of its own, which may allocate --memory MiB and take --seconds per
file. A hang or a crash in C ends the process, prints its stack, and is a defect, too. The seed of a
run reproduces the damage. The slowest run is measured in CPU time. Exit code 1: a defect was found.

With --programs, random programs of the DSL are compiled, and compared with their exact values.
Programs that fail are made smaller and written to --keep. With --models, random models of every
architecture are compiled and compared with NumPy. Both write how far they came to --keep, and
another run with the same --seed and --keep continues there.

With --coverage, libFuzzer changes the files of a group of readers and keeps those that reach new
code in --keep, where another run continues; it needs `hearthd[fuzz]`. `all` is every group. The
group `kernels` are the C kernels under ASan and UBSan, which needs clang (the variable CLANG).
--minutes and the limit of 60 s for an input are CPU time, without compiling the kernels.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import logging
import resource
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hearthd.text.templates import template_budget
from tools.fuzz.reader import Reader, attempt, group_of, read
from tools.fuzz.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Stop a reader after this many defects: they are mostly the same one.
_MAX_DEFECTS = 5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__.partition("\n")[0] if __doc__ else None
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1.0,
        help="in all, shared by the readers; of CPU time with --coverage",
    )
    parser.add_argument("--reader", action="append", choices=sorted(READERS), help="only this one")
    parser.add_argument("--runs", type=int, help="runs of a reader, in place of --minutes")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; others count on")
    parser.add_argument("--memory", type=int, default=512, help="MiB that a process may take")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one file")
    parser.add_argument(
        "--template-seconds",
        type=float,
        default=0.05,
        help=f"seconds for a template; the server allows {template_budget.MAX_SECONDS:g}",
    )
    parser.add_argument("--programs", action="store_true", help="random programs, not readers")
    parser.add_argument("--models", action="store_true", help="random models, not readers")
    parser.add_argument(
        "--write-corpus",
        action="store_true",
        help="write the smallest inputs in --keep to tools/fuzz/corpus",
    )
    parser.add_argument("--coverage", metavar="GROUP", help="fuzz a group of readers by coverage")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("fuzz-findings"),
        help="folder for --programs, --models and --coverage",
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the readers one after the other; the exit code."""
    arguments = _arguments()
    if arguments.programs:
        from tools.fuzz.compiled import program_runs  # the readers need no compiler

        return program_runs.run(arguments.seed, arguments.minutes, arguments.keep, _say)
    if arguments.models:
        from tools.fuzz.compiled import model_runs

        return model_runs.run(arguments.seed, arguments.minutes, arguments.keep, _say)
    if arguments.write_corpus:
        from tools.fuzz.guided import coverage, coverage_inputs

        for group in coverage_inputs.groups():
            _say(f"{group:12} {coverage_inputs.write_corpus(group, arguments.keep):4} inputs")
        _say(f"{coverage.KERNELS:12} {coverage_inputs.write_calls(arguments.keep):4} inputs")
        return 0
    if arguments.coverage:
        from tools.fuzz.guided import coverage

        known = [*dict.fromkeys(map(group_of, READERS.values())), coverage.KERNELS]
        if arguments.coverage not in ("all", *known):
            sys.exit(f"--coverage: got {arguments.coverage!r}, expected all, {', '.join(known)}")
        groups = known if arguments.coverage == "all" else [arguments.coverage]
        return coverage.run(groups, arguments.minutes, arguments.keep, _say)
    names = arguments.reader or list(READERS)
    if arguments.child:
        return _child(READERS[names[0]], arguments)
    return max([_in_a_process(name, arguments, share=1 / len(names)) for name in names])


def _in_a_process(name: str, arguments: argparse.Namespace, share: float) -> int:
    shared = ("seed", "memory", "seconds", "template_seconds")
    options = [f"--{key.replace('_', '-')}={getattr(arguments, key)}" for key in shared]
    options += [f"--minutes={arguments.minutes * share}"]
    options += [] if arguments.runs is None else [f"--runs={arguments.runs}"]
    command = [sys.executable, "-m", "tools.fuzz", "--child", f"--reader={name}", *options]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 1):
        _say(f"{name}: the process ended with {code}")
    return int(code != 0)


def _child(reader: Reader, arguments: argparse.Namespace) -> int:
    if not read(reader, reader.files()):  # also what is made once, before memory is counted
        _say(f"{reader.name}: the valid files are refused")
        return 1
    template_budget.MAX_SECONDS = (
        arguments.template_seconds
    )  # else most of the time is waited for these
    limit = _address_space() + (arguments.memory << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("ignore")  # of NumPy, on NaN values
    logging.disable()
    taken = defects = runs = 0
    slowest, slowest_seed = 0.0, arguments.seed
    for seed in _seeds(arguments):
        runs += 1
        start = time.process_time()
        faulthandler.dump_traceback_later(arguments.seconds, exit=True)
        try:
            taken += attempt(reader, Random(seed))
        except Exception:
            defects += 1
            _say(f"{reader.name}: defect, --seed {seed}\n{traceback.format_exc()}")
        faulthandler.cancel_dump_traceback_later()
        if (elapsed := time.process_time() - start) > slowest:
            slowest, slowest_seed = elapsed, seed
        if defects == _MAX_DEFECTS:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    _say(
        f"{reader.name:24} {runs:8} runs, {taken:7} taken, {defects} defects, peak {peak} MiB, "
        f"slowest {slowest:.2f} s (--seed {slowest_seed})"
    )
    return int(defects > 0)


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    ends = time.perf_counter() + 60 * arguments.minutes
    for run in itertools.count() if arguments.runs is None else range(arguments.runs):
        if arguments.runs is None and time.perf_counter() > ends:
            return
        yield arguments.seed + run


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
