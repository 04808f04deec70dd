"""Identifiers say what they name, and are spelled as Americans do."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

import pytest

from tests.test_layout import PACKAGES, ROOT, name_of, within

if TYPE_CHECKING:
    from collections.abc import Iterator

# Words that fit everything: docs/glossary.md and the terms of the field have
# better ones. `left` is an operand where the same function names the `right` one, else `remaining`.
REFUSED = frozenset("left made manager one own stuff thing things utils whole".split())
# Stems of British spellings.
BRITISH = (
    "behaviour", "catalogue", "centre", "colour", "customis", "favour", "grey", "honour",
    "initialis", "labelled", "licence", "maximis", "minimis", "modelled", "neighbour", "normalis",
    "optimis", "organis", "quantis", "recognis", "serialis", "summaris", "synchronis", "tokenis",
    "utilis", "vectoris",
)  # fmt: skip
# By module: names that are keys of a file.
KEPT = {"baker.compare.report.summary": {"made"}}
# A method that pydantic calls.
BRITISH_KEPT = frozenset({"settings_customise_sources"})


# The nodes that can bind names.
BINDING = (
    ast.Name, ast.Attribute, ast.arg, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.ExceptHandler, ast.MatchMapping, ast.MatchAs, ast.MatchStar,
)  # fmt: skip


# Comments and strings; those with expressions in them are captured.
_BODY = r"""(?:\"{3}(?:[^\\]|\\[\s\S])*?\"{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_TEXT = re.compile(rf"#.*|((?:[fF][rR]?|[rR][fF]){_BODY})|{_BODY}")
_REFUSED = re.compile(rf"\b_*(?:{'|'.join(sorted(REFUSED))})_*\b", re.IGNORECASE)


@functools.cache
def sources() -> dict[str, str]:
    """The text of every module of the project, the tools and the tests, by its dotted name."""
    return {
        name_of(path): path.read_text(encoding="utf-8")
        for folder in (*PACKAGES, "tests", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def may_refuse(source: str) -> bool:
    """Whether a refused name can be in a module: parsing all of them takes ten seconds."""
    return bool(_REFUSED.search(_TEXT.sub(lambda match: match[1] or "", source)))


def may_be_british(source: str) -> bool:
    """Whether a name of British spelling can be in a module."""
    lower = source.lower()
    return any(stem in lower for stem in BRITISH)


def bound(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds: variables, arguments, functions, classes, attributes."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.alias(asname=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


@functools.cache
def names_in(tree: ast.AST) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, BINDING))
    return {name.strip("_").lower() for node in nodes for name in bound(node)}


def refused(tree: ast.AST) -> set[str]:
    """The names in a tree that say nothing; `left` passes in a function that binds `right`."""
    found = names_in(tree) & REFUSED
    pending = [tree] if "left" in found else []
    found -= {"left"}
    while pending:
        node = pending.pop()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not (is_function and "right" in names_in(node)):
            found |= {"left"} & {name.strip("_").lower() for name in bound(node)}
            pending += ast.iter_child_nodes(node)
    return found


def british(tree: ast.AST) -> set[str]:
    return {name for name in names_in(tree) - BRITISH_KEPT if any(stem in name for stem in BRITISH)}


def test_identifiers_say_what_they_name() -> None:
    wrong = {
        module: names
        for module, source in sources().items()
        if not within(module, "tests")
        and may_refuse(source)
        and (names := refused(ast.parse(source)) - KEPT.get(module, set()))
    }
    assert not wrong


def test_no_module_has_a_name_that_fits_everything() -> None:
    assert not [name for name in sources() if name.rpartition(".")[2] in REFUSED]


def test_identifiers_have_american_spelling() -> None:
    wrong = {
        module: names
        for module, source in sources().items()
        if may_be_british(source) and (names := british(ast.parse(source)))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("one = 1", {"one"}),
        ("def f(whole): ...", {"whole"}),
        ("def f(*, _own=1): ...", {"own"}),
        ("async def made(): ...", {"made"}),
        ("class Manager: ...", {"manager"}),
        ("def f(self):\n    self._left = 1", {"left"}),
        ("sum(one.size for one in parts)", {"one"}),
        ("f'{[one for one in parts]}'", {"one"}),
        ('"""It\'s."""  # isn\'t\none = "\'"', {"one"}),
        ('f("one", \'"\', """one\n"one""")  # one', set()),
        ("min(parts, key=lambda thing: thing.size)", {"thing"}),
        ("import numpy as stuff", {"stuff"}),
        ("match x:\n    case [*whole]: ...", {"whole"}),
        ("def f(left, right): ...", set()),
        ("def f():\n    for left, right in pairs: ...", set()),
        ("def f(left, right): ...\ndef g(left): ...", {"left"}),
        ("number_one = one_line = parts.own", set()),
    ],
)
def test_a_name_that_fits_everything_is_reported(source: str, names: set[str]) -> None:
    assert refused(ast.parse(source)) == names
    assert may_refuse(source) or not names


@pytest.mark.parametrize("name", ["COLOURS", "normalise", "behaviour_of", "is_labelled"])
def test_british_spelling_is_reported(name: str) -> None:
    source = f"def f({name}): ..."
    assert may_be_british(source)
    assert british(ast.parse(source)) == {name.lower()}
    assert british(ast.parse("def f(colors, is_labeled): ...")) == set()
