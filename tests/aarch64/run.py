"""`scripts/run_aarch64`: what ARM bundles of the real model do on emulated ARM CPUs.

Knows which target belongs on which CPU, and what must hold. See `--help`.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.aarch64 import readme
from tests.aarch64.root import HOME, CannotEmulate, Root, make_root
from tests.aarch64.serving import Answer, ServeError, answer, refusal, session

# By target of `bake`, the CPU that it is for, as QEMU calls it.
CPUS = {"aarch64": "cortex-a76", "aarch64-v8": "cortex-a72"}
PRECISIONS = ("int8", "f32")

_ABOUT = """\
Run ARM bundles of Gemma 3 270M on emulated CPUs, and compare with this machine:

  - follow the README's "Run it on a Raspberry Pi" in an arm64 root made of Debian's packages;
  - serve bundles in int8 and f32, for a Raspberry Pi 5 on a Cortex-A76 and for a 4 on a Cortex-A72:
    the self-test passes, and the greedy tokens are those that this machine answers;
  - serve bundles on CPUs that they are not for: one line says so, and without that check the
    program is killed by an illegal instruction.

Takes half an hour and more, 6 GB of disk and 4 GB of memory. Needs Debian's apt and
keyring, Linux 6.7 or newer, '.[bake,demo]', and the network. Needs no root, installs nothing, and
leaves nothing behind but its downloads (250 MB) in the folder CACHE.
"""
# `serve` without its look at the CPU.
_UNCHECKED = """\
import server.runtime.load
server.runtime.load.check_target = lambda target: None
from server.cli import main
main()
"""
_HERE = (sys.executable, "-c", "from server.cli import main; main()")


def main() -> None:
    """Read the command line and run everything; exit 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(
        prog="scripts/run_aarch64",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cache", type=Path, metavar="CACHE", help="keeps what is downloaded")
    cache = parser.parse_args().cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="run-", dir=cache) as folder:
            run(Path(folder), cache)
    except KeyboardInterrupt:
        sys.exit(130)
    except (CannotEmulate, ServeError, subprocess.CalledProcessError) as error:
        sys.exit(f"run_aarch64: {error}")
    _say(f"all as it must be, after {time.monotonic() - began:.0f} s")


def run(folder: Path, cache: Path) -> None:
    """Everything, in a folder for what is made; raises ServeError at the first thing amiss."""
    _say("making an arm64 root")
    root = make_root(folder / "root", cache, readme.packages())
    _say("following the README")
    readme.follow_here(folder / "checkout", root)
    followed = readme.follow_on_the_board(root, CPUS["aarch64"])
    for precision in PRECISIONS:
        here = _bake(folder, "host", precision)
        wanted = answer([*_HERE, str(here)])
        _show(precision, "this machine", wanted)
        if precision == "int8":
            _compare(f"{precision} aarch64 (README)", followed, wanted)
        for target, cpu in CPUS.items():
            bundle = _bake(root.home, target, precision)
            got = answer(_serve(root, cpu, bundle.name))
            _compare(f"{precision} {target} on {cpu}", got, wanted)
    _wrong_cpus(root, folder)


def _compare(label: str, got: Answer, wanted: Answer) -> None:
    _show(label, "emulated", got)
    if got.token_ids != wanted.token_ids:
        raise ServeError(f"{label}: other tokens than this machine's: {wanted.token_ids}")


def _wrong_cpus(root: Root, folder: Path) -> None:
    """Bundles where they cannot run."""
    other = _bake(root.home, "x86_64-v3", "int8")
    wrong = {
        "aarch64 on cortex-a72": _serve(root, "cortex-a72", readme.BUNDLE),
        "aarch64 on cortex-a53": _serve(root, "cortex-a53", readme.BUNDLE),
        "x86_64-v3 on cortex-a76": _serve(root, "cortex-a76", other.name),
        "aarch64 on this machine": [*_HERE, str(root.home / readme.BUNDLE)],
    }
    for label, command in wrong.items():
        _say(f"{label}: {refusal(command)}")
    python = f"{HOME}/{Path(readme.SERVE).parent}/python"
    unchecked = root.command("cortex-a72", python, "-c", _UNCHECKED, readme.BUNDLE)
    ended = subprocess.run(unchecked, capture_output=True, check=False, cwd=folder).returncode
    if ended != -signal.SIGILL:
        raise ServeError(f"aarch64 on cortex-a72, unchecked: wanted SIGILL, got {ended}")
    _say("aarch64 on cortex-a72, were it not checked: killed by SIGILL")


def _bake(folder: Path, target: str, precision: str) -> Path:
    """Bake a bundle of one slot."""
    bundle = folder / f"{target}-{precision}"
    code = "from baker.cli import main; main()"
    options = ("--target", target, "--precision", precision, "--slots", "1", "--out", str(bundle))
    command = (sys.executable, "-c", code, "gemma3", *options)
    with session(command, stdout=subprocess.DEVNULL) as process:
        if process.wait():
            raise ServeError(f"bake gemma3 {' '.join(options)}: {process.returncode}")
    return bundle


def _serve(root: Root, cpu: str, bundle: str) -> list[str]:
    return root.command(cpu, f"{HOME}/{readme.SERVE}", bundle)


def _show(label: str, where: str, answer: Answer) -> None:
    _say(
        f"{label}, {where}: {answer.text!r} {list(answer.token_ids)}, "
        f"self-test within {answer.largest_difference:.2g} of NumPy"
    )


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
