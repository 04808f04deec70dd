"""Whether a chat template takes two messages of a role in a row.

Some templates need the roles to alternate, or take one system message. Clients send more: Codex
sends two system messages and two questions. Such messages are joined, as Ollama joins them for
every template. A probe shows which templates need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest
from hearthd.text.templates import content_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_JOINED = ("system", "developer", "user", "assistant")
_QUESTION = {"role": "user", "content": "probe"}
_SYSTEM = {"role": "system", "content": "probe"}


def takes_repeats(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes repeated roles; `render` raises InvalidRequest."""
    try:
        render([_QUESTION])
    except InvalidRequest:  # joining messages does not help it
        return True
    return _renders(render, [_QUESTION, _QUESTION]) and (
        not _renders(render, [_SYSTEM, _QUESTION])
        or _renders(render, [_SYSTEM, _SYSTEM, _QUESTION])
    )


def with_alternation(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, where texts of a role in a row are one message. Calls and results stay."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        if _is_text(message) and _is_text(last) and message["role"] == last["role"]:
            content = content_form.joined(last["content"], message["content"])
            joined[-1] = {**last, "content": content}
        else:
            joined.append(message)
    return joined


def _is_text(message: dict[str, Any]) -> bool:
    return message.keys() == {"role", "content"} and message["role"] in _JOINED


def _renders(render: Callable[[list[dict[str, Any]]], str], messages: list[dict[str, Any]]) -> bool:
    try:
        render(messages)
    except InvalidRequest:
        return False
    return True
