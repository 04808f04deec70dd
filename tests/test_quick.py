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


def test_quick_modules_stay_quick() -> None:
    """An import in a module that many tests use would make them slow. New tests may be slow."""
    assert sum(map(is_quick, TESTS.rglob("test_*.py"))) >= 80


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
