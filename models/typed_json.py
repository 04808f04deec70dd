"""JSON that others made, as records: the one check of its types, by pydantic."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hearthd.models.validation import expected

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_PROBLEMS = {
    "missing": "missing field",
    "extra_forbidden": "unknown field",
    "unexpected_keyword_argument": "unknown field",
}


def typed(type_: type[T], data: Any, where: str = "") -> T:
    """A value of strict_json.parse as `type_`: a dataclass, with all fields, or a TypedDict.

    A text or a flag is not a number, and a number is not a text; an integer is also a float. A
    field that a dataclass does not have is an error, and one that a TypedDict lacks is ignored.
    Raises ValueError. The message begins with the path of the value behind `where`.
    """
    from pydantic import ValidationError

    try:
        record: T = _adapter(cast("Any", type_)).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        path = where + "".join(
            f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"]
        )
        got = f"got {problem['input']!r:.80}, expected {expected(problem)}"
        said = _PROBLEMS.get(problem["type"], got)
        raise ValueError(f"{path.removeprefix('.')}: {said}") from error
    return record


@functools.cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter, with_config

    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        with_config(ConfigDict(extra="forbid"))(type_)
    return TypeAdapter(type_)
