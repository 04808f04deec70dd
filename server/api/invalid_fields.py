"""The invalid field of a request, from what pydantic reports about its body."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from starlette.datastructures import UploadFile

from hearthd.bundle.parsing.validation import expected, parts
from hearthd.server.api import inert_fields
from hearthd.text.errors import InvalidRequest, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def invalid_field(errors: Sequence[Mapping[str, Any]], body: object) -> InvalidRequest:
    """The error for a body; `errors` are pydantic's, with locations in "body" or "query"."""
    problems = [_at_discriminator(problem) for problem in errors]
    first = problems[0]
    # Every member of a union reports a problem: report the deepest ones of the first field.
    of_field = [problem for problem in problems if problem["loc"][:2] == first["loc"][:2]]
    deepest = _too_long(of_field) or max(of_field, key=lambda problem: len(problem["loc"]))
    field = _path(deepest, body)
    same_path = [
        problem
        for problem in of_field
        if len(problem["loc"]) == len(deepest["loc"]) and _path(problem, body) == field
    ]
    if deepest["type"] == "too_long":
        same_path = [deepest]
    return InvalidRequest(
        field=field,
        got=_got(deepest),
        expected=" or ".join(dict.fromkeys(_expected(problem) for problem in same_path)),
    )


def _too_long(problems: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The problem of a list with too many items, if other members refuse its first item."""
    for problem in problems:
        if problem["type"] == "too_long":
            depth = len(problem["loc"])
            if all(other["loc"][depth:][:1] in ((), (0,)) for other in problems):
                return problem
    return None


def _got(problem: Mapping[str, Any]) -> Scalar:
    match problem["type"]:
        case "missing":
            return None
        case "too_long":
            return f"{len(problem['input'])} {parts(problem)}"
    return shown(problem["input"])


def _expected(problem: Mapping[str, Any]) -> str:
    return inert_fields.instead(problem) or expected(problem)


def _at_discriminator(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move a problem with a union's discriminator to the path of that field."""
    if problem["type"] not in ("union_tag_invalid", "union_tag_not_found"):
        return problem
    name = problem["ctx"]["discriminator"].strip("'")
    present = problem["type"] == "union_tag_invalid"
    return {
        **problem,
        "type": problem["type"] if present else "missing",
        "loc": (*problem["loc"], name),
        "input": problem["input"].get(name) if present else None,
    }


def _path(problem: Mapping[str, Any], body: object) -> str:
    """`prompt[3]` for ("body", "prompt", "list[...]", 3): without the names of union members.

    A parameter of the query has its name.
    """
    path, location = "", problem["loc"]
    if location[0] == "query":
        return str(location[1])
    absent = len(location) - 1 if problem["type"] == "missing" else None
    for index, key in enumerate(location[1:], 1):
        if isinstance(key, int):
            path += f"[{key}]"
            body = body[key] if isinstance(body, list) else None
        elif isinstance(body, dict) and (key in body or index == absent):
            path += f".{key}" if path else key
            body = body.get(key)
    return path or "body"


def shown(value: object) -> Scalar:
    """A rejected value as a JSON scalar."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, UploadFile):
        value = "a file"
    try:
        return value if isinstance(value, str) else _text(value)
    except RecursionError:  # the parser accepts deeper nesting than the encoder
        return "a value nested too deeply to be shown"


def _text(value: object) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=repr)
    return repr(value)
