"""JSON as records: what errors say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.typed_json import typed


@dataclass(frozen=True)
class Point:
    """A record."""

    x: float
    name: str
    more: dict[str, Any]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("where", ["", "file"])
@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        ([], "", "got [], expected a JSON object"),
        ({"x": None}, ".x", "got null, expected a valid number"),
        ({"x": True}, ".x", "got true, expected a valid number"),
        ({"x": "é"}, ".x", 'got "é", expected a valid number'),
        ({"y": 1}, ".y", "unknown field"),
        ({"name": {"a": ["x" * 90]}}, ".name", f'got {{"a": ["{"x" * 72}, expected a valid string'),
        ({"more": nested(300)}, "", "nested too deeply"),
        ({"more": nested(20_000)}, "", "nested too deeply"),
    ],
)
def test_an_error_names_the_value_as_json(where: str, data: Any, path: str, problem: str) -> None:
    if isinstance(data, dict):
        data = {"x": 1, "name": "n", "more": {}, **data}
    with pytest.raises(ValueError) as caught:
        typed(Point, data, where)
    said = (where + path).removeprefix(".")
    assert str(caught.value) == (f"{said}: {problem}" if said else problem)


def test_a_number_that_nothing_counts_with_is_refused() -> None:
    data = strict_json.parse('{"x": 1e999, "name": "n", "more": {}}', keep_unusable=True)
    with pytest.raises(
        ValueError, match=r"^file: got 1e999, expected a number of at most 64 bits$"
    ):
        typed(Point, data, "file")
