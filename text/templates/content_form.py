"""The form in which a chat template takes the content of a message.

Most templates take a text. Templates of models that read images also take a list of parts, and
some take nothing else. A probe shows which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

Part: TypeAlias = dict[str, str]
Content: TypeAlias = str | list[Part]

_PROBE = "probe_content"


def takes_parts(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes lists of parts only; `render` raises InvalidRequest."""

    def shows(content: object) -> bool:
        try:
            return _PROBE in render([{"role": "user", "content": content}])
        except InvalidRequest:
            return False

    return not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])


def writes(render: Callable[[list[dict[str, Any]]], str], kind: str, marker: str) -> bool:
    """Whether a template writes a marker for a part of a kind; `render` raises InvalidRequest."""
    content = [{"type": kind}, {"type": "text", "text": _PROBE}]
    try:
        return marker in render([{"role": "user", "content": content}])
    except InvalidRequest:
        return False


def with_parts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as a list of parts."""
    return {**message, "content": _parts(message["content"])}


def divided(content: Content) -> tuple[str, list[Part]]:
    """The texts of a content, a line each, and its other parts."""
    texts = [part["text"] for part in _parts(content) if "text" in part]
    return "\n".join(texts), [part for part in _parts(content) if "text" not in part]


def joined(first: Content, second: Content) -> Content:
    """Two contents with an empty line between them: a text if both are texts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), {"type": "text", "text": "\n\n"}, *_parts(second)]


def _parts(content: Content) -> list[Part]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def length(message: dict[str, Any]) -> int:
    """Characters of the content of a message."""
    content = message["content"]
    if isinstance(content, str):
        return len(content)
    return sum(len(part.get("text", "")) for part in content)
