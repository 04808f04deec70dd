"""The C functions of models/dsl/kernels as objects that the compiler links into a program.

ziglang brings clang for every target as a Python package, so that a bundle is baked for another
machine without a toolchain. This is the only file that runs it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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


class KernelError(Exception):
    """A kernel does not compile, which is Hearth's fault; the message is clang's."""


def tool_version() -> str:
    """The version of the package that has the C compiler."""
    return version(PACKAGE)


def build(names: Iterable[str], target: Target, folder: Path) -> None:
    """Write NAME.o for each kernel into a folder; raises KernelError."""
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
                raise KernelError(f"{name}.c does not compile: {done.stderr[:2000]}")
