"""The package `hearthd`: what its wheel holds, and that no other package's names disturb it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.by_day import first_by_day

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parent.parent
# What the extras `compare`, `families`, `ray` and `torch` install.
ORACLES = {"llama_cpp", "ray", "torch", "transformers"}
LINKED = ("baker", "bundle", "configs", "models", "runtime", "sampling", "server", "text")
# Data files: the kernels', and one from each other folder that has some.
DATA = (
    "baker/compare/measurement/prompts.json",
    "configs/gemma3.toml",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "models/dsl/kernels").rglob("*.[ch]")),
    "server/systemd/hearth.service",
    "server/systemd/system.conf",
    "server/systemd/user.conf",
    "server/web/index.html",
    "py.typed",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), "."]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("name", LINKED)
def test_the_package_links_to_the_folders_of_the_checkout(name: str) -> None:
    link = ROOT / "hearthd" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hearthd"}
    assert {f"hearthd/{name}" for name in DATA} <= set(names)
    modules = {
        path.relative_to(ROOT).as_posix() for name in LINKED for path in (ROOT / name).rglob("*.py")
    }
    assert {f"hearthd/{name}" for name in modules} <= set(names)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The metadata of the wheel; its payload is the readme that a package index shows."""
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{_information(wheel)}/METADATA").decode())


def _information(wheel: Path) -> str:
    """The folder of the wheel's metadata."""
    name, version, *_ = wheel.stem.split("-")
    return f"{name}-{version}.dist-info"


def test_the_metadata_of_the_wheel_name_every_license(wheel: Path, metadata: Message) -> None:
    expression = metadata["License-Expression"].split(" AND ")
    assert expression == ["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"]
    files = metadata.get_all("License-File", [])
    vendored = (ROOT / "server/web/vendor").rglob("*LICENSE")
    assert sorted(files) == sorted(
        ["LICENSE", *(path.relative_to(ROOT).as_posix() for path in vendored)]
    )
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {f"{_information(wheel)}/licenses/{name}" for name in files} <= set(names)


def test_a_package_index_gets_the_readme_with_absolute_links(metadata: Message) -> None:
    description = metadata.get_payload()
    assert isinstance(description, str)
    assert not re.search(r"\]\((?!https://)", description)
    homepage = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))["Homepage"]
    raw = homepage.replace("github.com", "raw.githubusercontent.com")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(!?)\[[^]]*\]\((?!https:)([^)]+)\)", readme)
    assert {"", "!"} == {image for image, _ in links}
    for image, path in links:
        assert f"]({raw if image else f'{homepage}/blob'}/main/{path})" in description


@pytest.mark.parametrize(
    "arguments",
    first_by_day(["--version", "list", "serve --help", "bake gru --help", "run --help"]),
)
def test_other_modules_of_these_names_are_not_imported(
    wheel: Path, tmp_path: Path, arguments: str
) -> None:
    here, site = tmp_path / "here", tmp_path / "site"
    for folder in (here, site):
        folder.mkdir()
        for name in LINKED:
            (folder / f"{name}.py").write_text("raise SystemExit('another module')\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    done = subprocess.run(
        [sys.executable, "-v", "-m", "hearthd", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{site}/hearthd/cli.py" in done.stderr
    assert f"{ROOT}/" not in done.stderr.replace(str(Path(sys.prefix)), "")


def test_tests_are_collected_without_the_extras_of_oracles() -> None:
    """Such as PyTorch: a test that needs one skips itself, with pytest.importorskip."""
    importing = []
    for path in ROOT.glob("tests/**/test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in getattr(node, "names", ())]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if {name.partition(".")[0] for name in names} & ORACLES:
                importing.append(path.relative_to(ROOT).as_posix())
    assert not importing
