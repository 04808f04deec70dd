"""The form in which a chat template takes the content of a message.

Most templates take a text. Those of models that read images also take a list of parts, and some
take nothing else. A probe shows which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_PROBE = "probe_content"


def takes_parts(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes lists of parts only; `render` raises InvalidRequest."""

    def shows(content: object) -> bool:
        try:
            return _PROBE in render([{"role": "user", "content": content}])
        except InvalidRequest:
            return False

    return not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])


def with_parts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as a list of parts."""
    content = message["content"]
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def length(message: dict[str, Any]) -> int:
    """Characters of the content of a message."""
    content = message["content"]
    if isinstance(content, str):
        return len(content)
    return sum(len(part.get("text", "")) for part in content)
