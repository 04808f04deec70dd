"""The tool calls of an answer, for surfaces that do not pass on the text of the arguments."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from hearthd.text.tool_calls.call_format import CallDelta


def complete_members(arguments: str) -> dict[str, Any]:
    """The complete members of arguments that may be cut off."""
    try:
        members = from_json(arguments, allow_partial=True)
    except ValueError:  # nothing, or nested deeper than the parser allows
        return {}
    return members if isinstance(members, dict) else {}


@dataclass(frozen=True, kw_only=True)
class AnswerCall:
    """A call with its position in the answer, from 0."""

    index: int
    name: str
    arguments: dict[str, Any]


class CallReader:
    """Joins the deltas of an answer's calls to calls."""

    def __init__(self) -> None:
        self._begin = CallDelta(index=0)
        self._arguments = ""

    def read(self, delta: CallDelta) -> list[AnswerCall]:
        """The call that a delta completes, if it does."""
        if delta.name:
            self._begin, self._arguments = delta, ""
        self._arguments += delta.arguments
        return self.end() if delta.complete else []

    def end(self) -> list[AnswerCall]:
        """The call that has begun, if there is one, with the arguments that are complete."""
        begin, self._begin = self._begin, CallDelta(index=0)
        if not begin.name:
            return []
        arguments = complete_members(self._arguments)
        return [AnswerCall(index=begin.index, name=begin.name, arguments=arguments)]
