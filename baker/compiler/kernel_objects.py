"""The C functions of models/dsl/kernels as objects that the compiler links into a program.

ziglang brings clang for every target as a Python package, so that a bundle is baked for another
machine without a toolchain. This is the only file that runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import Kernels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from models.bundle import Target

PACKAGE = "ziglang"
# Plain code that calls nothing: no libc, no guards, and no fused operations but those that are
# written down, so that every target rounds alike.
FLAGS = (
    "-O3",
    "-std=c17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-g0",
    "-ffreestanding",
    "-fno-builtin",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-sanitize=all",
)

# What dot.h writes into an object.
_DOT_NAME = re.compile(rb"hearth dot: ([a-z0-9]+)\0")


class KernelError(Exception):
    """A kernel does not compile, which is Hearth's fault; the message is clang's."""


def build(names: Iterable[str], target: Target, folder: Path) -> Kernels:
    """Write NAME.o for each kernel into a folder; what was built. Raises KernelError."""
    names = tuple(names)
    machine = target.triple.partition("-")[0]
    cpu = "native" if target.cpu == "host" else target.cpu.replace("-", "_")
    command = [sys.executable, "-m", PACKAGE, "cc", "-target", f"{machine}-linux-gnu"]
    with as_file(files("models.dsl") / "kernels") as sources:
        for name in names:
            arguments = [f"-mcpu={cpu}", *FLAGS, "-c", str(sources / f"{name}.c")]
            done = subprocess.run(
                [*command, *arguments, "-o", str(folder / f"{name}.o")],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise KernelError(f"{name}.c does not compile: {_first_error(done.stderr)}")
    objects = (folder / f"{name}.o" for name in names)
    return Kernels(names=names, instructions=instructions(file.read_bytes() for file in objects))


def _first_error(said: str) -> str:
    """The first error among what the compiler said, in one line."""
    lines = said.strip().splitlines()
    return next((line for line in lines if "error:" in line), " ".join(lines[-1:]))


def instructions_for(target: Target) -> str | None:
    """The instruction set that integer products have on a target; raises KernelError."""
    with tempfile.TemporaryDirectory(prefix="kernels.") as folder:
        return build(["linear_grouped"], target, Path(folder)).instructions


def instructions(objects: Iterable[bytes]) -> str | None:
    """The instruction set for which dot.h was compiled, as the objects themselves say it.

    None if it is in none of them; raises KernelError if they differ.
    """
    found = {name.decode() for data in objects for name in _DOT_NAME.findall(data)}
    if len(found) > 1:
        raise KernelError(f"kernels of one program have different instructions: {sorted(found)}")
    return next(iter(found), None)
