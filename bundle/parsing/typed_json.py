"""JSON from elsewhere as records: pydantic checks its types, here only."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from hearthd.bundle.parsing.validation import expected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import TypeAdapter

T = TypeVar("T")

_MAX_SHOWN = 80  # characters of a rejected value
_TOO_DEEP = "nested too deeply"
_PROBLEMS = {
    "missing": "missing field",
    "extra_forbidden": "unknown field",
    "unexpected_keyword_argument": "unknown field",
    "json_invalid": _TOO_DEEP,  # all else that json.dumps writes is valid
}


def typed(type_: type[T], data: Any, where: str = "") -> T:
    """A value of strict_json.parse as `type_`: a dataclass, with all fields, or a TypedDict.

    A text or a flag is not a number, and a number is not a text; an integer is also a float. A
    field that a dataclass does not have is an error, and one that a TypedDict lacks is ignored.
    Raises ValueError. The message begins with the path of the value behind `where`.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(data, default=_refuse)
        record: T = _adapter(cast("Any", type_)).validate_json(text, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        path = where + "".join(
            f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"]
        )
        raise ValueError(_at(path.removeprefix("."), _said(problem))) from error
    except RecursionError as error:
        raise ValueError(_at(where, _TOO_DEEP)) from error
    except ValueError as error:
        raise ValueError(_at(where, str(error))) from error
    return record


def _refuse(value: Any) -> NoReturn:
    raise ValueError(f"got {value!r:.{_MAX_SHOWN}}, expected a number of at most 64 bits")


def _at(path: str, said: str) -> str:
    return f"{path}: {said}" if path else said


def _said(problem: Mapping[str, Any]) -> str:
    if said := _PROBLEMS.get(problem["type"]):
        return said
    got = json.dumps(problem["input"], ensure_ascii=False)
    return f"got {got:.{_MAX_SHOWN}}, expected {expected(problem)}"


@functools.cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter, with_config

    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        with_config(ConfigDict(extra="forbid"))(type_)
    return TypeAdapter(type_)
