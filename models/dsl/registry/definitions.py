"""The public functions and classes of a file, read from its text: the same for every Python."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Definition:
    """A function or class: how it is called, and the first sentence of its docstring."""

    call: str
    doc: str


@dataclass(frozen=True)
class File:
    """A file's name without `.py`, the first sentence of its docstring, and what it defines."""

    name: str
    doc: str
    definitions: tuple[Definition, ...]


def read(path: Path) -> File:
    """The definitions that the file exports, in its order."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    calls = {name: _arguments(node, text) for name, node in functions.items()}
    for name, node in classes.items():
        constructor = _constructor(node, classes)
        calls[name] = _arguments(constructor, text)[1:] if constructor else []
    return File(
        name=path.stem,
        doc=first_sentence(ast.get_docstring(tree)),
        definitions=tuple(
            Definition(
                f"{node.name}({', '.join(calls[node.name])})",
                first_sentence(ast.get_docstring(node)),
            )
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.name in _exported(tree, calls)
        ),
    )


def _exported(tree: ast.Module, names: Iterable[str]) -> list[str]:
    """The file's `__all__`, or the names without `_` where it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return [name for name in names if not name.startswith("_")]


def _constructor(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """The constructor of a class, or of its base in the same file."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item
    bases = [
        classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes
    ]
    return _constructor(bases[0], classes) if bases else None


def _arguments(node: ast.FunctionDef, text: str) -> list[str]:
    """The names of the arguments, with their defaults."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    parts = [
        _argument(argument, default, text)
        for argument, default in zip(plain, defaults, strict=True)
    ]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        _argument(argument, default, text)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return parts + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _argument(argument: ast.arg, default: ast.expr | None, text: str) -> str:
    if default is None:
        return argument.arg
    return f"{argument.arg}={ast.get_source_segment(text, default)}"


def first_sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, on one line; empty without one."""
    paragraph = (docstring or "").split("\n\n")[0]
    return re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]
