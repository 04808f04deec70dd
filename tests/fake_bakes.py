"""Bakes that write a manifest alone, in place of the process of `hearth bake`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.bundle import write_manifest
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Callable


class Bakes:
    """In place of subprocess.Popen: `hearth bake`, which writes a bundle with another context."""

    pid = returncode = 0

    def __init__(self) -> None:
        self.arguments: list[list[str]] = []
        self.status = 0
        self.until: Callable[[], bool] = lambda: True
        self.waited = 0

    def __call__(
        self, command: list[str], *, stdout: int, **_: Any
    ) -> contextlib.AbstractContextManager[Any]:
        assert command[:5] == [sys.executable, "-P", "-m", "hearthd", "bake"]
        assert command[5:7] == ["--verify-later", "--out"]
        assert stdout == subprocess.DEVNULL
        self.arguments.append(command[8:])
        self._out = Path(command[7])
        return contextlib.nullcontext(self)

    def wait(self) -> int:
        self.waited += 1
        end = time.monotonic() + PATIENCE
        while not self.until() and time.monotonic() < end:
            time.sleep(0.01)
        if self.status == 0:
            self._out.mkdir(exist_ok=True)
            write_bundle(self._out, context=64 + len(self.arguments))
        return self.status


def write_bundle(folder: Path, context: int) -> None:
    write_manifest(folder, fakes.manifest_of(FakeRuntime(vocab_size=300, context=context)))
