"""How long files and functions may be, in tests and tools, too."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.test_layout import PACKAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
# The beginnings of lines that begin no statement of a module.
_INSIDE = ("", " ", "#", ")", "]", "}")


def long_functions(source: str) -> Iterator[str]:
    """The functions of a module that are too long, and their lines."""
    starts = [i for i, line in enumerate([*source.splitlines(), "end"]) if line[:1] not in _INSIDE]
    if all(end - start <= MAX_FUNCTION_LINES for start, end in pairwise(starts)):
        return  # parsing all modules takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} has {lines} lines"


def test_files_and_functions_are_short() -> None:
    long = []
    for folder in (*PACKAGES, "tests", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            name, lines = path.relative_to(ROOT), len(source.splitlines())
            if lines > MAX_FILE_LINES:
                long.append(f"{name}: {lines} lines")
            long += [f"{name}: {function}" for function in long_functions(source)]
    assert not long


def test_a_long_function_is_reported() -> None:
    def function(lines: int) -> str:
        return "@decorated\ndef f(\n):" + "\n    1" * (lines - 2)

    assert not [*long_functions(function(MAX_FUNCTION_LINES))]
    assert [*long_functions(function(MAX_FUNCTION_LINES + 1))] == ["f has 51 lines"]
    assert [*long_functions(f"{function(MAX_FUNCTION_LINES + 1)}\nx = 1")]
