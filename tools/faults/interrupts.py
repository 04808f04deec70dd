"""Interrupt commands at random moments: each ends at once, with one line, and leaves nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from tools.faults.kill import processes_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Its life begins here: before, Python itself starts.
_COMMAND = """
import os, sys
from hearthd.runtime.system.interrupts import end_on_signals
end_on_signals(f"hearth {sys.argv[2]}")
os.write(int(sys.argv.pop(1)), b".")
from hearthd.cli import main
main()
"""
_FAKE = _COMMAND.replace(
    "from hearth", "from tests.server.terminal.fake_terminal import fake\nfake()\nfrom hearth"
)


@dataclass(frozen=True)
class Case:
    """A command, and Python code that runs it."""

    arguments: Sequence[str]
    code: str = _COMMAND
    keeps: str = ""  # a file that an interrupted command keeps, to go on from it

    @property
    def name(self) -> str:
        """As in the line that is printed."""
        return f"hearth {self.arguments[0]}"


def cases(folder: Path, bundle: Path | None) -> list[Case]:
    """Commands on a small GRU, which is baked in a folder, and on a fake or a real model."""
    rng = np.random.default_rng(0)
    shapes = {"weight_ih_l0": (48, 8), "weight_hh_l0": (48, 16), "bias_ih_l0": (48,)}
    tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    weights, gru = folder / "gru.safetensors", folder / "home" / "gru"
    save_file({**tensors, "bias_hh_l0": tensors["bias_ih_l0"]}, weights)
    bake = ("bake", "gru", "--steps", "2", "--weights", str(weights), "--out")
    subprocess.run(
        [sys.executable, "-m", "hearthd", *bake, str(gru)], check=True, capture_output=True
    )
    found = [
        Case((*bake, str(folder / "home" / "other"))),
        Case(("verify", str(gru))),
        Case(("reproduce", str(gru), "--weights", str(weights))),
        Case(("serve", str(gru), "--port", "0", "--shutdown-timeout", "0")),
        Case(("list", "--home", str(folder / "home"))),
        Case(("inspect", str(gru))),
        Case(("generate", ".", "word", "--max-tokens", "50"), _FAKE),
        Case(("chat", "."), _FAKE),
    ]
    if bundle is None:
        return found
    requests = folder / "requests.jsonl"
    body = '"url": "/v1/completions", "body": {"prompt": "word", "max_tokens": 20}'
    requests.write_text(f'{{"custom_id": "a", {body}}}\n', encoding="utf-8")
    return [
        *found,
        Case(("generate", str(bundle), "word " * 500, "--max-tokens", "50")),
        Case(("chat", str(bundle))),
        Case(("verify", str(bundle))),
        Case(("serve", str(bundle), "--port", "0", "--shutdown-timeout", "0")),
        Case(("compare", str(bundle), str(bundle), "--out", str(folder / "report"))),
        Case(
            (
                "batch",
                str(requests),
                "--out",
                str(folder / "answers.jsonl"),
                "--bundle",
                str(bundle),
            ),
            keeps="answers.jsonl",
        ),
    ]


def interrupt_commands(
    folder: Path, commands: Sequence[Case], *, count: int, seed: int, seconds: float
) -> None:
    """Send Ctrl-C at moments of each command's life, and three within 40 ms every third time.

    Prints a line per command. Raises AssertionError if a command takes more than `seconds` to end,
    or ends otherwise than with one line and status 130, or with files or processes left; or, if the
    moment was too late, as without Ctrl-C.
    """
    (folder / "tmp").mkdir(exist_ok=True)
    # The commands would inherit that it is ignored, as in a job that a shell runs behind.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(seed)
    shares = [count // len(commands) + (i < count % len(commands)) for i in range(len(commands))]
    for case, share in zip(commands, shares, strict=True):
        before = _files(folder)
        duration = _Run(folder, case).finished()
        results = _files(folder) - before
        _remove(results)
        moments = [rng.uniform(0, duration) for _ in range(share)]
        ends = list(_interrupted(folder, case, moments, results))
        late = sum(complete for _, complete in ends)
        slowest = max((end for end, complete in ends if not complete), default=0.0)
        print(  # noqa: T201
            f"{case.name}: {share} times in {duration:.1f} s, {late} too late, "
            f"ended after {1e3 * slowest:.0f} ms or less"
        )
        assert slowest < seconds, f"{case.name} took {slowest:.2f} s to end"


def _interrupted(
    folder: Path, case: Case, moments: Sequence[float], results: set[Path]
) -> Iterator[tuple[float, bool]]:
    """Seconds until each run ended, and whether it was complete before.

    It leaves nothing, or all that a run makes: the moment may be after its last file.
    """
    before = _files(folder)
    for number, moment in enumerate(moments):
        run = _Run(folder, case)
        time.sleep(moment)
        began = time.monotonic()
        # A second one has a meaning of its own for a server.
        for _ in range(3 if number % 3 == 2 and case.arguments[0] != "serve" else 1):
            run.process.send_signal(signal.SIGINT)
            time.sleep(0.015)
        _, said = run.process.communicate(timeout=60)
        where = f"{case.name} after {moment:.3f} s: status {run.process.returncode}, {said}"
        complete = run.process.returncode == 0
        assert complete or run.process.returncode == 130, where
        assert "Traceback" not in said, where
        lines = [line for line in said.splitlines() if line.startswith(case.name)]
        assert len(lines) == (not complete), where
        assert complete or lines[0].startswith(f"{case.name}: interrupted"), where
        assert not processes_in(folder), where
        yield time.monotonic() - began, complete
        leftovers = _files(folder) - before
        kept = leftovers <= {folder / case.keeps} or leftovers == results
        assert complete or kept, f"{where}, left {leftovers}"
        _remove(leftovers)


class _Run:
    """A command that has begun."""

    def __init__(self, folder: Path, case: Case) -> None:
        started, mark = os.pipe()
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", case.code, str(mark), *case.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[mark],
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
        )
        os.close(mark)
        os.read(started, 1)
        os.close(started)

    def finished(self) -> float:
        """Seconds that it takes; of a server, until it serves."""
        began = time.monotonic()
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if " serves " in line:
                self.process.send_signal(signal.SIGINT)
        said = self.process.communicate()[1]
        assert self.process.returncode == 0, said
        return time.monotonic() - began


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def _remove(paths: set[Path]) -> None:
    """Remove files, and folders with all that is in them."""
    for path in sorted(paths, reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
