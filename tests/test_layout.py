"""The layout of the sources: which package may import which."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parent.parent

# What commands share.
COMMAND_LINE = (
    "hearthd.find_or_bake",
    "hearthd.flags",
    "hearthd.flag_names",
    "hearthd.later_verification",
    "hearthd.model_weights",
)
# What the modules of a folder may import of this project, besides the folder itself. The longest
# name that fits a module counts. Imports for type checking count too. `hearthd.models` is called
# `models` here, as its folder is, and so on.
ALLOWED = {
    "bundle": (),
    "sampling": (),
    "models": ("bundle",),
    # The DSL knows no bundle, no adapter and no model.
    "models.dsl": (),
    "runtime": ("bundle",),
    # Freed memory is returned after a tokenizer is read.
    "text": ("bundle", "sampling", "runtime.system.free_memory"),
    # A bake reads the tokenizer and the chat template as a server does, and its flags are derived
    # from a schema as a server's are. `hearth inspect` takes any model, baked or not.
    "baker": ("bundle", *COMMAND_LINE, "models", "runtime", "text"),
    "benchmarks": ("bundle", "models", "baker", "runtime", "sampling", "server", "text"),
    "examples": ("bundle", "models", "baker", "runtime"),
    "hearthd": (
        "baker",
        "bundle",
        "server",
        "text",
        "runtime.system.interrupts",
        "runtime.system.operating_system",
        "runtime.checks.self_test",
    ),
    "server": ("bundle", *COMMAND_LINE, "hearthd.bake_flags", "runtime", "sampling", "text"),
    # The path of a request: api -> services -> completions -> engine -> sampling and runtime.
    "server.engine": (
        "text.errors",
        "server.errors",
        "server.fault_isolation",
        "sampling",
        "runtime",
    ),
    "server.images": (
        "bundle",
        "runtime.interface",
        "runtime.media",
        "runtime.system.resource_limits",
        "server.decoder_process",
        "server.errors",
        "server.speech",  # the same sound files
        "text",
    ),
    "server.speech": ("bundle", "runtime", "server.decoder_process", "text.errors"),
    "server.completions": (
        "server.engine",
        "server.errors",
        "server.fault_isolation",
        "sampling",
        "text",
    ),
    "server.lora": ("bundle", "runtime", "server.engine", "server.use_count", "text.errors"),
    "server.batch_requests": (),
    "server.services": (
        "bundle",
        "runtime",
        "server.completions",
        "server.engine",
        "server.errors",
        "server.fault_isolation",
        "server.images",
        "server.logs",
        "server.lora",
        "server.metrics",
        "server.process",
        "server.speech",
        "server.use_count",
        "server.version",
        "text",
    ),
    "server.api": (
        "bundle",
        "runtime.array_bytes",  # the format of a raw body
        "runtime.system.operating_system",  # the locks of claims
        "server.batch_requests",
        "server.completions",
        "server.errors",
        "server.fault_isolation",
        "server.logs",
        "server.lora",
        "server.metrics",
        "server.services",
        "server.speech",
        "server.version",
        "text",
    ),
    "server.process": (
        "bundle",
        "runtime.system.available_memory",
        "runtime.system.disk_speed",
        "runtime.system.free_memory",
        "runtime.system.operating_system",
        "runtime.system.resource_limits",
        "server.errors",
        "server.fault_isolation",
        "text.errors",
    ),
    "server.terminal": (
        "bundle",
        *COMMAND_LINE,
        "hearthd.bake_flags",
        "runtime.system.interrupts",
        "server.api",
        "server.complete_file",
        "server.errors",
        "server.fault_isolation",
        "server.server_url",
        "server.services",
        "text",
    ),
    "server.web": (),
    "server.batch": (
        "bundle",
        "hearthd.flags",
        "runtime.system.interrupts",
        "runtime.system.operating_system",
        "runtime.checks.self_test",
        "server.app",
        "server.batch_requests",
        "server.errors",
        "server.process.memory_limit",
        "server.server_url",
        "server.services",
        "text.control_characters",
        "text.errors",
    ),
    "server.cluster": (
        "bundle",
        "runtime",
        "server.api",
        "server.app",
        "server.engine",
        "server.errors",
        "server.fault_isolation",
        "server.logs",
        "server.lora",
        "server.open_service",
        "server.process",
        "server.services",
        "server.setting_files",
        "server.settings",
        "text",
    ),
}
PACKAGES = tuple(name for name in ALLOWED if "." not in name)
LINKED = tuple(
    f"hearthd.{name}"
    for name in ("baker", "bundle", "configs", "models", "runtime", "sampling", "server", "text")
)
# The gradient of a loop is made of the gradients of its body.
RECURSIVE = (("models.dsl.ops", "models.dsl.gradient"),)


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the project, by its dotted name."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def folder_of(module: str) -> str:
    return ".".join(path_of(module).relative_to(ROOT).parent.parts)


def statements(tree: ast.AST, *, executed: bool = False) -> Iterator[ast.AST]:
    """The statements in a tree at any depth; or statements that can run, not for type checking."""
    for node in ast.iter_child_nodes(tree):
        is_statement = isinstance(node, ast.stmt | ast.excepthandler | ast.match_case)
        if is_statement and not (executed and _is_for_types(node)):
            yield node
            yield from statements(node, executed=executed)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported(nodes: Iterable[ast.AST], folder: str) -> set[str]:
    """The dotted names that import statements name: modules, and what is in them.

    `hearthd.bundle` is returned as `bundle`, as in ALLOWED.
    """
    names: set[str] = set()
    package = folder.split(".")
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("hearthd.") if name.startswith(LINKED) else name for name in names}


def forbidden(names: Iterable[str], folder: str) -> set[str]:
    """The names of this project that a module in the folder may not import."""
    rule = max((name for name in ALLOWED if within(folder, name)), key=len)
    return {
        name
        for name in names
        if name.split(".")[0] in (*PACKAGES, "tests", "tools")
        and not any(within(name, allowed) for allowed in (rule, *ALLOWED[rule]))
    }


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_imports_go_one_way() -> None:
    wrong = {
        module: names
        for module, tree in modules().items()
        if (names := forbidden(imported(statements(tree), folder_of(module)), folder_of(module)))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("source", "folder", "wrong"),
    [
        ("import hearthd.baker.cli", "models", {"baker.cli"}),
        ("def f():\n    from hearthd.models import decoder", "server", {"models.decoder"}),
        ("from hearthd.models.dsl.types import DType", "server", {"models.dsl.types.DType"}),
        ("from hearthd.server.engine import engine", "baker", {"server.engine.engine"}),
        ("from hearthd.server.engine import state", "server.api.operator", {"server.engine.state"}),
        (
            "if TYPE_CHECKING:\n import hearthd.server.api.fields",
            "text",
            {"server.api.fields"},
        ),
        ("from hearthd.runtime.iree import device", "server.api", {"runtime.iree.device"}),
        ("from tests.conftest import order", "baker", {"tests.conftest.order"}),
        ("from ..models import dsl", "server", {"models.dsl"}),
        ("from hearthd.bundle import LanguageManifest", "server", set()),
        ("from hearthd.runtime.open_bundle import open_bundle", "baker", set()),
        ("from hearthd.text.grammars import grammar", "server.api.openai", set()),
        ("from . import errors\nimport modelsmith", "server", set()),
    ],
)
def test_a_forbidden_import_is_reported(source: str, folder: str, wrong: set[str]) -> None:
    assert forbidden(imported(statements(ast.parse(source)), folder), folder) == wrong


def unit_of(module: str) -> str:
    """The folder of a module, or in a folder with sub-folders the module itself."""
    folder = path_of(module).parent
    return module if any(folder.glob("*/__init__.py")) else folder_of(module)


@functools.cache
def dependencies() -> dict[str, set[str]]:
    """For each unit, the units that it imports, in functions too."""
    edges: dict[str, set[str]] = defaultdict(set)
    for module, tree in modules().items():
        for name in imported(statements(tree, executed=True), folder_of(module)):
            if target := next((part for part in prefixes(name) if part in modules()), None):
                edges[unit_of(module)].add(unit_of(target))
    for unit, target in RECURSIVE:
        edges[unit].remove(target)
    return edges


def prefixes(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def cycles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of units that import one another, directly or not."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        reached[start], pending = set(), [start]
        while pending:
            for unit in edges.get(pending.pop(), set()) - reached[start]:
                reached[start].add(unit)
                pending.append(unit)
    mutual = {
        unit: frozenset(other for other in reached[unit] if unit in reached.get(other, ()))
        for unit in edges
    }
    return {group for group in mutual.values() if len(group) > 1}


def test_folders_do_not_import_one_another_in_a_circle() -> None:
    assert not cycles(dependencies())


def test_a_cycle_is_reported() -> None:
    chain = {"a": {"b"}, "b": {"b", "c"}, "c": {"d"}}
    assert cycles(chain) == set()
    assert cycles(chain | {"d": {"b"}}) == {frozenset("bcd")}


def test_every_package_is_read() -> None:
    names = modules()
    assert {name.split(".")[0] for name in names} == set(PACKAGES)
    assert {"models.dsl.ops.record", "server.api.openai.chat"} <= set(names)
    units = dependencies()
    assert "server.completions" in units["server.api.openai"]
    assert "runtime.checks" in units["server.services"]


def test_the_server_runs_without_baker_dsl_and_compiler() -> None:
    code = "import sys, hearthd.server.app; print('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = result.stdout.split()
    assert "hearthd.server.app" in loaded
    unwanted = (
        "hearthd.baker",
        "hearthd.models.dsl",
        "hearthd.models.decoder",
        "iree.compiler",
        "tests",
        "tools",
    )
    assert not [name for name in loaded if name.startswith(unwanted)]


def test_only_the_cluster_and_its_batch_import_ray() -> None:
    importing = {
        module if module == "server.batch.ray_data" else folder_of(module)
        for module, tree in modules().items()
        if any(within(name, "ray") for name in imported(statements(tree), folder_of(module)))
    }
    assert importing == {"server.cluster", "server.batch.ray_data"}


@pytest.mark.parametrize(
    "folder", ["server.api.anthropic", "server.api.gemini", "server.api.ollama"]
)
def test_other_surfaces_import_nothing_of_openais(folder: str) -> None:
    importing = {
        f"{module}: {name}"
        for module, tree in modules().items()
        if folder_of(module) == folder
        for name in imported(statements(tree), folder)
        if within(name, "server.api.openai")
    }
    assert not importing


def test_importing_models_imports_nothing() -> None:
    assert (ROOT / "models/__init__.py").read_bytes() == b""
