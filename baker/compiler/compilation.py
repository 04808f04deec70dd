"""Compile StableHLO to a vmfb with iree-compile."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING

from iree.compiler.tools.binaries import find_tool

from hearthd.baker.compiler.child_process import child_process, kill, killed_by
from hearthd.baker.compiler.kernel_objects import NO_CHAINS, build
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.bundle import Compiler

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

    from hearthd.bundle import KernelBuild, Target

_PACKAGE = "iree-base-compiler"
# The variables that name the folder for temporary files, on Linux and macOS, and on Windows.
_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-input-type=stablehlo",
    # No checks between passes, which take a quarter of the time: the self-test checks the result.
    "--verify=false",
    # Without these two flags the compiler optimizes very little.
    "--iree-opt-level=O2",
    "--iree-opt-data-tiling",
    # A norm keeps rows on the stack of the worker: 86 KB for Gemma 3 27b.
    "--iree-llvmcpu-stack-allocation-limit=131072",
    # Debug information would be half the size of the file.
    "--iree-vm-bytecode-module-strip-source-map=true",
    "--iree-llvmcpu-debug-symbols=false",
)
# The last phase that reads no object of a kernel.
_BEFORE_KERNELS = "executable-targets"


class CompileError(Exception):
    """The compiler rejected a program, a bug of Hearth; the message is the compiler's."""


def compiler_for(target: Target) -> Compiler:
    """The compiler and its flags for a target."""
    cpu, *added = target.cpu.split("+")
    target_flags = [
        f"--iree-llvmcpu-target-triple={target.triple}",
        f"--iree-llvmcpu-target-cpu={cpu}",
    ]
    if added:
        features = ",".join(f"+{name}" for name in added)
        target_flags.append(f"--iree-llvmcpu-target-cpu-features={features}")
    return Compiler(name=_PACKAGE, version=version(_PACKAGE), flags=(*_FLAGS, *target_flags))


class Compilation:
    """Kernels and a program that a thread compiles. A context manager: leaving it ends that.

    On Linux, the end of this process, even by SIGKILL, kills the compilers, too.
    """

    def __init__(
        self,
        source: Path,
        output: Path,
        target: Target,
        *,
        kernels: Iterable[str] = (),
        chains: Mapping[str, str] = NO_CHAINS,
        streamed: bool = False,
        until: str = "vmfb",
    ) -> None:
        """Start compiling MLIR text that calls `kernels` and `chains` of them.

        models/dsl/mlir/stablehlo.py says which they are. `streamed` as in `build`.

        `until` is `vmfb`, or a phase such as `stream`, whose output is text and needs no kernel.
        """
        self.compiler = compiler_for(target)
        self._until = until
        self._source, self._output = source, output
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()
        names = tuple(kernels)
        with ExitStack() as stack:
            objects = stack.enter_context(temporary_folder("kernels.", output.parent))
            pool = stack.enter_context(ThreadPoolExecutor(2, "compiler"))
            stack.callback(self._cancel)
            self._built = pool.submit(
                build, names, target, objects, chains, self._cancelled, streamed=streamed
            )
            calls_kernels = bool(names or chains)
            self._done = pool.submit(self._compile, objects, calls_kernels=calls_kernels)
            self._running = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def kernels(self) -> KernelBuild:
        """The C kernels in the program; waits until they are built. Raises KernelError."""
        return self._built.result()

    def wait(self) -> None:
        """Wait until the output is written; raises KernelError or CompileError."""
        self._built.result()
        self._done.result()

    def _cancel(self) -> None:
        self._cancelled.set()
        if (process := self._process) is not None:
            kill(process)

    def _compile(self, objects: Path, *, calls_kernels: bool) -> None:
        """Compile the program; kernels are built meanwhile. Raises KernelError or CompileError."""
        if self._until != "vmfb":
            self._run(self._source, self._output, f"--compile-to={self._until}")
        elif not calls_kernels:
            self._run(self._source, self._output)
        else:
            compiled = objects / "program.mlirbc"
            phase = f"--compile-to={_BEFORE_KERNELS}"
            self._run(self._source, compiled, phase, "--emit-mlir-bytecode")
            self._built.result()
            search = f"--iree-hal-executable-object-search-path={objects}"
            self._run(compiled, self._output, f"--compile-from={_BEFORE_KERNELS}", search)

    def _run(self, source: Path, output: Path, *options: str) -> None:
        """Run iree-compile; raises CompileError."""
        tool = find_tool("iree-compile")
        command = [tool, *self.compiler.flags, *options, str(source), "-o", str(output)]
        # Temporary files of a killed compiler are removed with the output's folder.
        environment = {**os.environ, **dict.fromkeys(_TEMPORARY, str(self._output.parent))}
        # A file: diagnostics may be large, and a full pipe would block the compiler.
        with (
            tempfile.TemporaryFile() as diagnostics,
            child_process(command, stderr=diagnostics, env=environment) as process,
        ):
            self._process = process
            if self._cancelled.is_set():
                raise CompileError("iree-compile was cancelled")
            if process.wait():
                diagnostics.seek(0)
                text = diagnostics.read().decode(errors="replace")
                raise CompileError(f"iree-compile failed: {killed_by(process) or text[:2000]}")
