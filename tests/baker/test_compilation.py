"""The compiler's process ends with the one that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.patience import PATIENCE

# A compiler that never comes to an end.
_HANG = """
import sys, time
from pathlib import Path
from hearthd.baker.compiler import compilation as compile
from hearthd.baker.compiler.targets import find_target
compile.find_tool = lambda name: sys.argv[1]
with compile.Compilation(Path("in"), Path("out"), find_target("host")) as compilation:
    print(compilation._process.pid, flush=True)
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
    deadline = time.monotonic() + PATIENCE
    while _runs(compiler):
        assert time.monotonic() < deadline, f"process {compiler} goes on"
        time.sleep(0.01)
