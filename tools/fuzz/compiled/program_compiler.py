"""Compile many graphs as one module, and tell which of them the compiler rejects."""

from __future__ import annotations

import bisect
import itertools
import os
import re
import resource
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iree.compiler.tools.binaries import find_tool

from hearthd.baker.compiler.compilation import compiler_for
from hearthd.baker.compiler.kernel_objects import build
from hearthd.baker.compiler.targets import find_target
from hearthd.bundle import PARAMETER_SCOPE
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Graph
from hearthd.models.dsl.mlir.stablehlo import chains, kernels, module_text
from hearthd.models.dsl.ops.control import scan
from hearthd.models.dsl.ops.indexing import scatter
from tests.models.compiled import Loaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

# After the baker's flags. The program computes the same bits with them (a test compares), and takes
# less time: one thread, and only the dialects that are read.
FASTER = (
    "--mlir-disable-threading",
    "--mlir-print-op-on-diagnostic=false",
    *(
        f"--iree-plugin=-{name}"
        for name in (
            "hal_target_cuda",
            "hal_target_metal_spirv",
            "hal_target_rocm",
            "hal_target_vmvx",
            "hal_target_vulkan_spirv",
            "input_torch",
            "input_tosa",
        )
    ),
)
# In the place of those that save the baker a quarter of its time: checks between passes.
CHECKED = ("--iree-input-type=auto", "--verify=true")
# CPU time that the compiler has for one graph, which takes it about 0.2 s; more have more.
_SECONDS = 20
# The compiler spends a sixth of its time in malloc: keep what is freed.
_ALLOCATOR = "glibc.malloc.tcache_count=2000:glibc.malloc.trim_threshold=4000000000"


@dataclass(frozen=True)
class Function:
    """A compiled function that computes some graphs side by side.

    The compiler takes 45 ms for a function, and 30 ms for each of its dispatches.
    """

    graph: Graph
    members: tuple[Graph, ...]

    @staticmethod
    def of(members: Sequence[Graph]) -> Function:
        """The graphs, which share no tensors and read no parameters, as one; or one as it is."""
        if len(members) == 1:
            return Function(members[0], tuple(members))
        inputs, outputs, nodes = (
            tuple(itertools.chain.from_iterable(parts))
            for parts in zip(
                *((member.inputs, member.outputs, member.nodes) for member in members), strict=True
            )
        )
        return Function(Graph(members[0].name, inputs, outputs, {}, {}, nodes), tuple(members))

    def without(self, node: int | None, reason: str, rejected: dict[str, str]) -> list[Function]:
        """The functions to compile after the compiler has rejected the node of this number.

        node      None if the message does not name one; then each graph is compiled alone
        rejected  gets the reason, by the name of the graph
        """
        if len(self.members) > 1 and node is None:
            return [Function.of([member]) for member in self.members]
        ends = list(itertools.accumulate(len(member.nodes) for member in self.members))
        index = 0 if node is None else bisect.bisect_right(ends, node)
        rejected[self.members[index].name] = reason
        remaining = [*self.members[:index], *self.members[index + 1 :]]
        return [Function.of(remaining)] if remaining else []


@dataclass(frozen=True)
class Compiled:
    """A compiled module and its functions."""

    loaded: Loaded
    functions: tuple[Function, ...]

    def call(self, arrays: Mapping[str, Sequence[Array]]) -> dict[str, list[Array]]:
        """The results of each graph by name, from its arrays."""
        results = {}
        for function in self.functions:
            arguments = [array for member in function.members for array in arrays[member.name]]
            values = iter(self.loaded.call(function.graph, arguments))
            for member in function.members:
                results[member.name] = list(itertools.islice(values, len(member.outputs)))
        return results


def compile_graphs(
    graphs: Sequence[Graph], folder: Path, parameters: Path | None = None, *, together: int = 1
) -> tuple[Compiled | None, dict[str, str]]:
    """The graphs that the compiler accepts, and its message for each rejected one, by name.

    parameters  the archive of the graphs' weights
    together    graphs of a function, at most
    """
    functions, rejected = list(_functions(map(inlined, graphs), together)), dict[str, str]()
    while functions:
        message = compile_all([function.graph for function in functions], folder)
        if not message:
            return Compiled(Loaded(folder / "module.vmfb", parameters), tuple(functions)), rejected
        rejections = _found(functions, message, folder)
        functions = [
            remaining
            for function in functions
            for remaining in (
                function.without(*rejections[function.graph.name], rejected)
                if function.graph.name in rejections
                else [function]
            )
        ]
    return None, rejected


def _functions(graphs: Iterable[Graph], together: int) -> Iterator[Function]:
    """Group graphs into functions.

    A graph with a loop or a scatter has its own: the DSL refuses both in one function, and protects
    the inputs of a function with a loop.
    """
    others = []
    for graph in graphs:
        if together == 1 or _has_loop_or_scatter(graph):
            yield Function.of([graph])
        else:
            others.append(graph)
    for first in range(0, len(others), together):
        yield Function.of(others[first : first + together])


def _has_loop_or_scatter(graph: Graph) -> bool:
    origins = [node.origin for node in graph.nodes]
    return any(isinstance(origin, Apply) and origin.op in (scan, scatter) for origin in origins)


def compile_all(graphs: Sequence[Graph], folder: Path, flags: Sequence[str] = FASTER) -> str:
    """Compile them as one module; the compiler's messages, empty if it wrote module.vmfb."""
    source, target = folder / "module.mlir", find_target("host")
    source.write_text(module_text("module", graphs, PARAMETER_SCOPE), encoding="utf-8")
    missing = (name for name in kernels(graphs) if not (folder / f"{name}.o").exists())
    build(missing, target, folder, chains(graphs))
    seconds = _SECONDS + len(graphs) // 2
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
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
    )
    if not done.returncode:
        return ""
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "the compiler does not end"
    return done.stderr.decode(errors="replace") or f"ended with {done.returncode}"


def _found(
    functions: Sequence[Function], message: str, folder: Path
) -> dict[str, tuple[int | None, str]]:
    """The node and the reason of each function that the compiler rejects, by its name."""
    rejections: dict[str, tuple[int | None, str]] = {}
    lines = (folder / "module.mlir").read_text(encoding="utf-8").splitlines()
    for error in re.finditer(r"module\.mlir:(\d+):\d+: error: (.*)", message):
        before = lines[: int(error[1])]
        headers = re.findall(r"func\.func public @(\w+)\(", "\n".join(before))
        node = re.match(r"    %v(\d+)", before[-1])
        if headers:
            rejections.setdefault(headers[-1], (int(node[1]) if node else None, error[2][:120]))
    if rejections:
        return rejections
    if len(functions) == 1:
        frame = re.search(r"#4 \S+ (.{1,100})", message)
        reason = f"crash in {frame[1]}" if frame else message[:120]
        return {functions[0].graph.name: (None, reason)}
    # The compiler crashed, and does not say where.
    middle = len(functions) // 2
    for half in (functions[:middle], functions[middle:]):
        if message := compile_all([function.graph for function in half], folder):
            rejections |= _found(half, message, folder)
    return rejections
