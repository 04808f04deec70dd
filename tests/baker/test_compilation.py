"""The compiler's process ends with the one that started it, and when its block is left."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hearthd.baker.compiler import compilation
from hearthd.baker.compiler.compilation import Compilation, CompileError
from hearthd.baker.compiler.kernel_objects import KernelError
from hearthd.baker.compiler.targets import find_target
from hearthd.models.dsl.kernel_sources import KERNELS
from tests.patience import wait_until

# A compiler that never comes to an end.
_HANG = """
import sys, time
from pathlib import Path
from hearthd.baker.compiler import compilation as compile
from hearthd.baker.compiler.targets import find_target
compile.find_tool = lambda name: sys.argv[1]
with compile.Compilation(Path("in"), Path("out"), find_target("host")) as compilation:
    while (process := compilation._process) is None:
        time.sleep(0.01)
    print(process.pid, flush=True)
    time.sleep(60)
"""


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_killing_a_bake_kills_its_compiler(tmp_path: Path) -> None:
    tool = tmp_path / "iree-compile"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    command = [sys.executable, "-c", _HANG, str(tool)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as bake:
        assert bake.stdout is not None
        compiler = int(bake.stdout.readline())
        assert _runs(compiler)
        bake.kill()
    wait_until(lambda: not _runs(compiler))


def test_leaving_the_block_ends_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "iree-compile"
    tool.write_text("#!/bin/sh\nsleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setattr(compilation, "find_tool", lambda _: str(tool))
    for waits in (True, False):
        with Compilation(tmp_path / "in", tmp_path / "out", find_target("host")) as running:
            while waits and running._process is None:
                time.sleep(0.01)
        if running._process is not None:
            assert not _runs(running._process.pid)
        with pytest.raises(CompileError):
            running.wait()
    assert list(tmp_path.iterdir()) == [tool]


def test_no_kernel_is_begun_after_the_block(tmp_path: Path) -> None:
    with Compilation(
        tmp_path / "in", tmp_path / "out", find_target("host"), kernels=KERNELS
    ) as run:
        pass
    with pytest.raises(KernelError, match="was not compiled: the bake ends"):
        run.wait()
