"""Which tests count as quick, and that none of them starts a process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.quick import ROOT, Guard, is_quick, slow_imports

TESTS = ROOT / "tests"


@pytest.mark.parametrize(
    ("module", "reached"),
    [
        ("server/process/test_cli.py", "subprocess"),
        ("baker/gru/test_bake_gru.py", "iree.compiler"),
        ("server/web/test_chat.py", "selenium"),
    ],
)
def test_imports_are_followed_through_the_project(module: str, reached: str) -> None:
    assert reached in slow_imports(TESTS / module)
    assert not is_quick(TESTS / module)


def test_most_modules_are_quick() -> None:
    modules = [path for path in TESTS.rglob("test_*.py") if TESTS / "e2e" not in path.parents]
    assert sum(map(is_quick, modules)) > len(modules) / 3


def test_the_guard_stops_processes_and_nothing_else() -> None:
    guard = Guard()
    with guard.on():
        assert os.getpid()
        with pytest.raises(RuntimeError, match="started a process"):
            subprocess.run([sys.executable, "-c", ""], check=True)
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_the_guard_lets_other_threads_bake() -> None:
    with Guard().on(), ThreadPoolExecutor(1) as pool:
        command = [sys.executable, "-c", ""]
        assert pool.submit(subprocess.run, command, check=True).result().returncode == 0
