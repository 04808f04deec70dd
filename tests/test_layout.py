"""The layout of the sources: who may import whom, and how long a thing may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What each package may import of ours, besides itself.
ALLOWED = {
    "models": (),
    "server": ("models.bundle", "runtime"),
    "runtime": ("models.bundle",),
    "baker": ("models", "runtime"),
    "benchmarks": ("models", "baker", "runtime", "server"),
    "examples": ("models", "baker", "runtime"),
}
FILES = sorted(path for package in ALLOWED for path in (ROOT / package).rglob("*.py"))
LONGEST_FILE = 500
LONGEST_FUNCTION = 60

each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def imported(tree: ast.Module, package: list[str]) -> set[str]:
    """The dotted names that a module imports, wherever in it: the modules, and what is in them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def forbidden(names: set[str], package: str) -> set[str]:
    allowed = (package, *ALLOWED[package])
    return {
        name
        for name in names
        if name.split(".")[0] in (*ALLOWED, "tests")
        and not any(name == root or name.startswith(f"{root}.") for root in allowed)
    }


@each_file
def test_imports_go_one_way(path: Path) -> None:
    parts = list(path.relative_to(ROOT).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not forbidden(imported(tree, parts), parts[0])


@pytest.mark.parametrize(
    ("source", "package", "wrong"),
    [
        ("import baker.cli", "models", {"baker.cli"}),
        ("def f():\n    from models import gemma3", "server", {"models.gemma3"}),
        ("from models.dsl.types import DType", "server", {"models.dsl.types.DType"}),
        ("from server.engine import engine", "baker", {"server.engine.engine"}),
        ("from tests.conftest import order", "baker", {"tests.conftest.order"}),
        ("from models.bundle import LanguageManifest", "server", set()),
        ("from runtime.open_bundle import open_bundle", "baker", set()),
        ("from ..models import dsl", "server", {"models.dsl"}),
        ("from . import errors\nimport modelsmith", "server", set()),
    ],
)
def test_a_forbidden_import_is_seen(source: str, package: str, wrong: set[str]) -> None:
    assert forbidden(imported(ast.parse(source), [package]), package) == wrong


def test_there_is_something_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"models", "baker", "server"}
    assert ROOT / "models/dsl/ops/record.py" in FILES


def test_the_server_runs_without_baker_dsl_and_compiler() -> None:
    code = "import sys, server.app; print('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = result.stdout.split()
    assert "server.app" in loaded
    forbidden_there = ("baker", "models.dsl", "models.gemma3", "iree.compiler", "tests")
    assert not [name for name in loaded if name.startswith(forbidden_there)]


def test_importing_models_imports_nothing() -> None:
    assert (ROOT / "models/__init__.py").read_bytes() == b""


@each_file
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, node.name
