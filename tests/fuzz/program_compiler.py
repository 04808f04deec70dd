"""Compile many graphs as one module, and tell which of them the compiler rejects."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from iree.compiler.tools.binaries import find_tool

from baker.compiler.compilation import compiler_for
from baker.compiler.kernel_objects import build
from baker.compiler.targets import find_target
from models.bundle import PARAMETER_SCOPE
from models.dsl.mlir.stablehlo import kernels, module_text
from tests.models.compiled import Loaded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from models.dsl.graph import Graph

# After the baker's flags. The program computes the same bits with them (a test compares),
# and takes 30 % less time: no checks between passes, and only the dialects that are read.
FASTER = (
    "--iree-input-type=stablehlo",
    "--verify=false",
    "--mlir-disable-threading",
    "--mlir-print-op-on-diagnostic=false",
)
# The compiler spends a sixth of its time in malloc: keep what is freed.
_ALLOCATOR = "glibc.malloc.tcache_count=2000:glibc.malloc.trim_threshold=4000000000"


def compile_graphs(
    graphs: Sequence[Graph], folder: Path, parameters: Path | None = None
) -> tuple[Loaded | None, dict[str, str]]:
    """The graphs that the compiler accepts, and by name its message for each of the others.

    parameters  the archive of the graphs' weights
    """
    rejected: dict[str, str] = {}
    while left := [graph for graph in graphs if graph.name not in rejected]:
        message = compile_all(left, folder)
        if not message:
            return Loaded(folder / "module.vmfb", parameters), rejected
        rejected |= _rejected(left, message, folder)
    return None, rejected


def compile_all(graphs: Sequence[Graph], folder: Path, flags: Sequence[str] = FASTER) -> str:
    """Compile them as one module; the compiler's messages, empty if it wrote module.vmfb."""
    source, target = folder / "module.mlir", find_target("host")
    source.write_text(module_text("module", graphs, PARAMETER_SCOPE), encoding="utf-8")
    build((name for name in kernels(graphs) if not (folder / f"{name}.o").exists()), target, folder)
    done = subprocess.run(
        [
            find_tool("iree-compile"),
            *compiler_for(target).flags,
            *flags,
            f"--iree-hal-executable-object-search-path={folder}",
            str(source),
            *("-o", str(folder / "module.vmfb")),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder), "GLIBC_TUNABLES": _ALLOCATOR},
    )
    if not done.returncode:
        return ""
    return done.stderr.decode(errors="replace") or f"ended with {done.returncode}"


def _rejected(graphs: Sequence[Graph], message: str, folder: Path) -> dict[str, str]:
    """By name the reason for each graph that the compiler rejects, in a message for all."""
    reasons: dict[str, str] = {}
    lines = (folder / "module.mlir").read_text(encoding="utf-8").splitlines()
    for place in re.finditer(r"module\.mlir:(\d+):\d+: error: (.*)", message):
        headers = re.findall(r"func\.func public @(\w+)\(", "\n".join(lines[: int(place[1])]))
        if headers:
            reasons.setdefault(headers[-1], place[2][:120])
    if reasons:
        return reasons
    if len(graphs) == 1:
        frame = re.search(r"#4 \S+ (.{1,100})", message)
        return {graphs[0].name: f"crash in {frame[1]}" if frame else message[:120]}
    # The compiler crashed, and does not say where.
    middle = len(graphs) // 2
    for half in (graphs[:middle], graphs[middle:]):
        if message := compile_all(half, folder):
            reasons |= _rejected(half, message, folder)
    return reasons
