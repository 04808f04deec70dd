"""Tool calls, and the interface of the forms in which models write them."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool call by the model; `arguments` is a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The calls in the first `length` characters of a text; plain text if there are none."""

    length: int
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A tool that a call may name.

    schema  the JSON Schema of its arguments, as text that llguidance can compile
    strict  whether a keyword that cannot be enforced is an error
    """

    name: str
    schema: str
    strict: bool = False


class UnsupportedSchema(ValueError):
    """The format cannot enforce a keyword in the schema of `tool`, which is strict."""

    def __init__(self, tool: str, keyword: str) -> None:
        super().__init__(f"the model's form of tool calls cannot enforce {keyword}")
        self.tool = tool


class CallFormat(ABC):
    """How a model writes tool calls.

    starts      texts that begin a call
    only_first  whether a call can only be the beginning of an answer
    special     names of special tokens that are part of a call and must appear in the text
    stop        strings that end the answer: the model waits for the tool's result
    id_length   number of letters and digits of a call's id, if the chat template requires one
    """

    starts: tuple[str, ...]
    only_first: bool = False
    special: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    id_length: int | None = None

    @abstractmethod
    def parse(self, text: str, *, final: bool) -> Parsed | None:
        """Read a text that begins with one of `starts`; None if it is incomplete.

        With `final` no more text will come, and the end of a call may be missing.
        """

    @abstractmethod
    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        """The rule `calls` in llguidance's variant of Lark: one call, or several if `parallel`.

        `quote` makes a terminal of a text, which may be the name of a special token. Raises
        UnsupportedSchema.
        """

    @property
    def trigger(self) -> bytes:
        """A regular expression of text in which a call has begun, from its group `call`.

        With `only_first` it matches from the beginning of an answer.
        """
        return b"(?P<call>%s)" % b"|".join(re.escape(start.encode()) for start in self.starts)


def _number(text: str) -> float:
    """The nearest finite number: JSON's can be larger than those of its readers."""
    return min(max(float(text), -sys.float_info.max), sys.float_info.max)


_DECODER = json.JSONDecoder(strict=False, parse_float=_number)
_SPACE = re.compile(r"[ \t\r\n]*")


def skip_space(text: str, start: int) -> int:
    """The position of the first character after white space."""
    space = _SPACE.match(text, start)
    assert space is not None
    return space.end()


def read_json(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at a position, and where it ends; raises JSONDecodeError.

    White space may precede it. Strings may contain line breaks.
    """
    try:
        return _DECODER.raw_decode(text, skip_space(text, start))
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of many digits
        raise json.JSONDecodeError("too large", text, start) from error


def tool_call(name: object, arguments: object) -> ToolCall | None:
    """A call with these parts, or None if they cannot be sent to a client."""
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()  # raises for half a surrogate pair
    except (ValueError, RecursionError):
        return None
    return ToolCall(name=name, arguments=text)
