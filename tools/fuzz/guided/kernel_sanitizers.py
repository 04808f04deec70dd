"""The kernels under ASan and UBSan, with the coverage of libFuzzer, by clang of the system."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl.kernel_sources import KERNELS
from hearthd.runtime.system.cpu_features import cpu_features
from tests.models.kernels.kernel_library import INSTRUCTION_SETS, SOURCES, write_sources
from tools.fuzz.guided.kernel_calls import run
from tools.fuzz.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

CLANG = os.environ.get("CLANG", "clang-19")
# The branches of dot.h as clang names their CPUs; see INSTRUCTION_SETS.
_CPUS = {
    "amx": ("-march=sapphirerapids",),
    "avx512vnni": ("-march=icelake-server",),
    "avxvnni": ("-march=alderlake",),
    "avx2": ("-march=x86-64-v3",),
    "portable": ("-march=x86-64-v3", "-mno-avx2"),
}
_FLAGS = (
    "-shared", "-fPIC", "-O1", "-g", "-std=c17", "-ffp-contract=off", "-fno-math-errno",
    "-Wno-psabi", "-fsanitize=address,undefined,fuzzer-no-link", "-fno-sanitize-recover=all",
)  # fmt: skip


@dataclass(frozen=True)
class Sanitized:
    """The kernels of an instruction set."""

    library: ctypes.CDLL

    def function(self, name: str) -> Any:
        """The C function of a kernel."""
        return getattr(self.library, f"hearth_{name}")


def build(folder: Path) -> dict[str, Path]:
    """Compile the kernels for every instruction set of this machine, unless that was done."""
    folder.mkdir(parents=True, exist_ok=True)
    libraries = {}
    for name, flags in _CPUS.items():
        if not INSTRUCTION_SETS[name][1] <= cpu_features():
            continue
        library = libraries[name] = folder / f"{name}.so"
        sources = write_sources(list(KERNELS))
        newest = max(path.stat().st_mtime for path in SOURCES.rglob("*.[ch]"))
        if not library.exists() or library.stat().st_mtime < newest:
            command = [
                CLANG,
                *_FLAGS,
                *flags,
                f"-I{SOURCES}",
                "-o",
                str(library),
                *map(str, sources),
            ]
            # Without the runtime of ASan, which coverage.py preloads.
            environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
            subprocess.run(command, check=True, env=environment)
    return libraries


def reader(libraries: dict[str, Path]) -> Reader:
    """A reader of calls, which makes each of them with every library."""
    loaded = [Sanitized(ctypes.CDLL(str(path))) for path in libraries.values()]

    def read(folder: Path) -> None:
        data = (folder / "call").read_bytes()
        for library in loaded:
            run(library, data)

    return Reader(
        name="kernels",
        files=lambda: {"call": bytes(range(1, 40))},
        damage={"call": _damaged},
        read=read,
        refusals=(),
    )


def _damaged(_data: bytes, random: Random) -> bytes:
    """A call of random numbers."""
    return random.randbytes(random.randint(8, 32))
