"""`scripts/run_aarch64`: test ARM bundles of the real model on emulated ARM CPUs; see `--help`."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.aarch64 import readme
from tests.aarch64.journal import Journal
from tests.aarch64.root import HOME, CannotEmulate, Root, make_root
from tests.aarch64.serving import Answer, ServeError, answer, refusal, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# By target of `bake`, the CPU that it is for, as QEMU calls it.
CPUS = {"aarch64": "cortex-a76", "aarch64-v8": "cortex-a72"}
# What is run if the command line names nothing else. A precision of `bake` needs no more than this.
PRECISIONS = ("int8-g32", "f32")
# What docs/small-devices.md bakes and asks.
_FOLLOWED = ("aarch64", "int8-g32")
# What a bundle, and what the board has of Hearth, is made of.
_SOURCES = (
    "baker",
    "bundle",
    "configs",
    "hearthd",
    "models",
    "runtime",
    "sampling",
    "server",
    "text",
    "pyproject.toml",
    readme.PAGE,
)

_ABOUT = """\
Run ARM bundles of Gemma 3 270M on emulated CPUs, and compare with this machine:

  - follow docs/small-devices.md in an arm64 root made of Debian's packages;
  - serve bundles, for a Raspberry Pi 5 on a Cortex-A76 and for a 4 on a Cortex-A72: the self-test
    passes, and the greedy tokens are those that this machine answers;
  - serve bundles on CPUs that they are not for: one line says so, and without that check the
    program is killed by an illegal instruction.

Needs Debian's apt and keyring, Linux 6.7 or newer, '.[bake,demo]', the network, 6 GB of disk and
4 GB of memory. Needs no root, installs nothing. What is interrupted goes on where it was, as long
as the sources stay the same; what is finished leaves only its downloads (250 MB) in CACHE.
"""
# `hearth serve` without its check of the CPU.
_UNCHECKED = """\
from hearthd.runtime import open_bundle
open_bundle.best_program = lambda manifest: manifest.programs[0]
from hearthd.cli import main
main()
"""
_HERE = (sys.executable, "-m", "hearthd", "serve")


def main() -> None:
    """Read the command line and run everything; exit 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(
        prog="scripts/run_aarch64",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cache", type=Path, metavar="CACHE", help="keeps what is downloaded")
    parser.add_argument(
        "--precision",
        action="append",
        metavar="P",
        help=f"only this one of `bake`, may be repeated (default: {', '.join(PRECISIONS)})",
    )
    asked = parser.parse_args()
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    began = time.monotonic()
    try:
        cache = asked.cache.resolve()
        folder = _folder(cache)
        root = Root(folder=folder / "root", pip_cache=cache / "pip")
        Run(root=root, journal=Journal(file=folder / "done.json")).all(
            cache, asked.precision or PRECISIONS
        )
        shutil.rmtree(folder)
    except KeyboardInterrupt:
        sys.exit(130)
    except (CannotEmulate, ServeError, subprocess.CalledProcessError) as error:
        sys.exit(f"run_aarch64: {error}")
    _say(f"all as it must be, after {time.monotonic() - began:.0f} s")


def _folder(cache: Path) -> Path:
    """Where a run of these sources keeps what it made; what was made of others goes."""
    digest = hashlib.sha256()
    for name in readme.tracked(*_SOURCES):
        file = readme.CHECKOUT / name
        digest.update(name.encode() + b"\0" + (b"" if file.is_dir() else file.read_bytes()))
    folder = cache / f"run-{digest.hexdigest()[:12]}"
    for other in cache.glob("run-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, kw_only=True)
class Run:
    """A board, and what was seen on it. All raise ServeError at the first thing amiss."""

    root: Root
    journal: Journal

    def all(self, cache: Path, precisions: Sequence[str]) -> None:
        """Everything that the command line's help says."""
        self._part("make a root", lambda: make_root(self.root, cache / "apt", readme.packages()))
        self._part("follow the page here", lambda: readme.follow_here(self.root))
        followed = self._answer(
            "follow the page on the board",
            lambda: readme.follow_on_the_board(self.root, CPUS[_FOLLOWED[0]]),
        )
        for precision in precisions:
            expected = self._served(precision, "host", here=True)
            for target, cpu in CPUS.items():
                got = followed
                if (target, precision) != _FOLLOWED:
                    got = self._served(precision, target)
                if got.token_ids != expected.token_ids:
                    raise ServeError(f"{precision} for {target}: other tokens than this machine's")
                _say(f"{precision} for {target} on {cpu}: this machine's tokens")
        self._wrong_cpus(self.root.home / f"host-{precisions[0]}")

    def _part(self, name: str, work: Callable[[], object]) -> Any:
        _say(name)
        return self.journal.once(name, work)

    def _answer(self, name: str, work: Callable[[], Answer]) -> Answer:
        got = Answer(**self._part(name, lambda: dataclasses.asdict(work())))
        _say(
            f"  {got.text!r} {got.token_ids}, "
            f"self-test within {got.largest_difference:.2g} of NumPy"
        )
        return got

    def _served(self, precision: str, target: str, *, here: bool = False) -> Answer:
        """What a bundle answers, here or on the CPU that it is for."""
        bundle = self.root.home / f"{target}-{precision}"
        self._part(f"bake {bundle.name}", lambda: _bake(bundle, target, precision))
        where = "this machine" if here else CPUS[target]
        command = [*_HERE, str(bundle)] if here else self._serve(CPUS[target], bundle.name)
        return self._answer(f"serve {bundle.name} on {where}", lambda: answer(command))

    def _serve(self, cpu: str, bundle: str) -> list[str]:
        return self.root.command(cpu, f"{HOME}/{readme.HEARTH}", "serve", bundle)

    def _wrong_cpus(self, of_this_machine: Path) -> None:
        """Bundles where they cannot run."""
        wrong = {
            "a Pi 5's bundle on cortex-a72": self._serve("cortex-a72", readme.BUNDLE),
            "a Pi 5's bundle on cortex-a53": self._serve("cortex-a53", readme.BUNDLE),
            "this machine's on cortex-a76": self._serve("cortex-a76", of_this_machine.name),
            "a Pi 5's on this machine": [*_HERE, str(self.root.home / readme.BUNDLE)],
        }
        for label, command in wrong.items():
            _say(label)
            _say(f"  {refusal(command)}")
        label = "a Pi 5's bundle on cortex-a72, were it not checked"
        _say(label)
        python = f"{HOME}/{Path(readme.HEARTH).parent}/python"
        unchecked = self.root.command(
            "cortex-a72", python, "-c", _UNCHECKED, "serve", readme.BUNDLE
        )
        ended = subprocess.run(unchecked, capture_output=True, check=False).returncode
        if ended != -signal.SIGILL:
            raise ServeError(f"{label}: wanted SIGILL, got {ended}")
        _say("  killed by SIGILL")


def _bake(bundle: Path, target: str, precision: str) -> None:
    """Bake a bundle of one slot."""
    options = ("--target", target, "--precision", precision, "--slots", "1", "--out", str(bundle))
    command = (sys.executable, "-m", "hearthd", "bake", "gemma3", *options)
    with session(command, stdout=subprocess.DEVNULL) as process:
        if process.wait():
            raise ServeError(f"bake gemma3 {' '.join(options)}: {process.returncode}")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
