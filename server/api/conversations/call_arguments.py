"""The arguments of a tool call as an object, for surfaces that do not pass on their text."""

from typing import Any

from pydantic_core import from_json


def complete_members(arguments: str) -> dict[str, Any]:
    """The complete members of arguments that may be cut off."""
    try:
        members = from_json(arguments, allow_partial=True)
    except ValueError:  # nothing, or nested deeper than the parser allows
        return {}
    return members if isinstance(members, dict) else {}
