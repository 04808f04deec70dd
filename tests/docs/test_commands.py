"""Commands in the documentation name programs, options and files that exist."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from importlib import import_module
from pathlib import PurePath
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from hearthd.bundle import bundle_home
from hearthd.cli import COMMANDS, _overview
from tests.docs.pages import PAGES, ROOT, commands, examples

SHELL = [
    pytest.param(words, id=f"{example.page}:{example.line}-{' '.join(words)[:60]}")
    for example in examples("bash")
    for words in commands(example)
]


def parse(command: Any, name: str, arguments: list[str]) -> None:
    """Read arguments as the command line does, and run nothing."""
    context = command.make_context(name, list(arguments))
    if isinstance(command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        name, subcommand, arguments = command.resolve_command(context, rest)  # type: ignore[assignment]
        parse(subcommand, name, arguments)


def application(name: str) -> Any:
    command = COMMANDS[name]
    return typer.main.get_command(getattr(import_module(command.module), command.app))


@pytest.mark.parametrize("words", SHELL)
def test_documented_commands_are_accepted(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_home, "find_bundle", lambda *_: ROOT)  # every bundle exists
    program, arguments = PurePath(words[0]).name, words[1:]
    if program == "bake":
        program, arguments = "hearth", ["bake", *arguments]
    if program == "hearth" and "NAME" not in arguments:
        if arguments[0].startswith("--"):
            overview = typer.main.get_command(_overview())
            assert {*arguments} <= {name for option in overview.params for name in option.opts}
        elif arguments[-1] != "--help":
            parse(application(arguments[0]), arguments[0], arguments[1:])
    elif program.startswith("python") and arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1]) is not None
    elif words[0].startswith("scripts/"):
        assert (ROOT / words[0]).is_file()


def test_an_unknown_option_is_rejected() -> None:
    with pytest.raises(Exception, match="--prot"):
        parse(application("serve"), "serve", ["bundle", "--prot", "80"])


def test_pages_start_with_an_example() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        if page.stem not in ("changelog", "contributing", "operators"):
            head, *blocks = page.read_text(encoding="utf-8").split("```")
            assert blocks, page
            assert len(head.splitlines()) < 12, f"{page.name}: the example comes late"


def test_readme_is_short_and_names_the_two_scripts() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert {"scripts/demo", "scripts/test"} <= {*lines}


def test_files_that_pages_name_exist() -> None:
    named = re.compile(r"`((?:baker|docs|examples|models|runtime|scripts|server|tests)/[\w./]+)`")
    for page in PAGES:
        if page.name != "operators.md":
            for path in named.findall(page.read_text(encoding="utf-8")):
                missing = "NAME" not in path and not (ROOT / path).exists()
                assert not missing, f"{page.relative_to(ROOT)}: {path}"


def test_python_names_on_pages_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`(hearthd(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
            assert pkgutil.resolve_name(name), f"{page.relative_to(ROOT)}: {name}"


def test_relative_links_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
