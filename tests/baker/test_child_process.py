"""What is said of a compiler that ended without a message."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.compiler import kernel_objects
from hearthd.baker.compiler.child_process import child_process, killed_by
from hearthd.baker.compiler.kernel_objects import KernelError, instructions_for
from hearthd.baker.compiler.targets import find_target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("signal.raise_signal(signal.SIGKILL)", "the compiler was ended by SIGKILL; free memory"),
        ("sys.exit(1)", ""),
    ],
)
def test_a_compiler_that_was_killed_says_so(code: str, reason: str) -> None:
    with child_process([sys.executable, "-c", f"import signal, sys; {code}"]) as process:
        process.wait()
    assert killed_by(process).startswith(reason)
    assert bool(killed_by(process)) is bool(reason)


def test_a_killed_clang_is_not_a_kernel_that_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "zig"
    script.write_text("#!/bin/sh\nkill -KILL $$\n")
    script.chmod(0o700)
    monkeypatch.setattr(kernel_objects, "_zig", lambda: str(script))
    with pytest.raises(KernelError, match="compiler was ended by SIGKILL"):
        instructions_for(find_target("host"))
