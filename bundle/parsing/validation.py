"""Pydantic's messages as phrases that follow "expected"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}  # Python's words in messages
SIZE = "a number of bytes, or a number with a unit, such as 256MiB"
_PHRASES = {
    "extra_forbidden": "no field of this name",
    "missing": "a value",
    "none_required": "null",
    "tuple_type": "a valid list",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "byte_size": SIZE,
    "byte_size_unit": SIZE,
}
_BODY = "a JSON object, sent as application/json"


def parts(problem: Mapping[str, Any]) -> str:
    """The unit of a value's length: "characters" or "items"."""
    return "characters" if isinstance(problem["input"], str) else "items"


def expected(problem: Mapping[str, Any]) -> str:
    """The values that a field accepts, by one of ValidationError.errors()."""
    match problem["type"]:
        case "union_tag_invalid":
            return f"one of {problem['ctx']['expected_tags']}"
        case "literal_error":
            return re.sub(
                rf"\b({'|'.join(_JSON_WORDS)})\b",
                lambda word: _JSON_WORDS[word[0]],
                problem["ctx"]["expected"],
            )
        case "too_long":
            most = problem["ctx"]["max_length"]
            return f"at most {most} {parts(problem)[: -1 if most == 1 else None]}"
        case "too_short":
            least = problem["ctx"]["min_length"]
            return f"at least {least} {parts(problem)[: -1 if least == 1 else None]}"
        case "string_pattern_mismatch":
            return f"a text that matches {problem['ctx']['pattern']}"
        case "model_attributes_type" | "model_type":
            # Of a whole body, the header Content-Type can be the reason.
            nested = len(problem.get("loc", ())) > 1
            return "a JSON object" if nested else _BODY
        case "missing" if problem.get("loc") == ("body",):
            return _BODY
        case known if known in _PHRASES:
            return _PHRASES[known]
    phrase = re.sub(r"^(\w+ should (be|have)|Value error,) ", "", problem["msg"])
    return re.sub(r", (unable to|got a) .*", "", phrase)
