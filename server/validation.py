"""Pydantic's messages as phrases that follow "expected"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}  # Python's words in messages
SIZE = "a number of bytes, or a number with a unit, such as 256MiB"


def expected(problem: Mapping[str, Any]) -> str:
    """The values that a field accepts, by one of ValidationError.errors()."""
    match problem["type"]:
        case "extra_forbidden":
            return "no field of this name"
        case "missing":
            return "a value"
        case "union_tag_invalid":
            return f"one of {problem['ctx']['expected_tags']}"
        case "literal_error":
            return re.sub(
                rf"\b({'|'.join(_JSON_WORDS)})\b",
                lambda word: _JSON_WORDS[word[0]],
                problem["ctx"]["expected"],
            )
        case "none_required":
            return "null"
        case "tuple_type":
            return "a valid list"
        case "dict_type":
            return "a JSON object"
        case "model_attributes_type" | "model_type":
            # Of a whole body, the header Content-Type can be the reason.
            nested = len(problem.get("loc", ())) > 1
            return "a JSON object" if nested else "a JSON object, sent as application/json"
        case "byte_size" | "byte_size_unit":
            return SIZE
    phrase = re.sub(r"^(\w+ should (be|have)|Value error,) ", "", problem["msg"])
    return re.sub(r", (unable to|got a) .*", "", phrase)
