"""The order of roles that a chat template takes.

Some templates need the roles to alternate; such messages are joined, as Ollama joins them for
every template. Some take one system message at the start, and reject or drop others; some take
none. Clients send more: Codex sends two system messages and two questions, and Claude Code sends
system messages between the turns. Probes show what a template takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hearthd.text.errors import InvalidRequest
from hearthd.text.templates import content_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SystemForm: TypeAlias = Literal["everywhere", "first", "nowhere"]

_SYSTEM = ("system", "developer")
_JOINED = (*_SYSTEM, "user", "assistant")


def takes_repeats(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes repeated roles; `render` raises InvalidRequest."""
    # If it takes no question, joining messages does not help it.
    return not _writes(render, "user") or _writes(render, "user", "user")


def system_form(render: Callable[[list[dict[str, Any]]], str]) -> SystemForm:
    """Where a template writes system messages; `render` raises InvalidRequest."""
    turns = ("user", "assistant", "user")
    if not _writes(render, *turns) or _writes(
        render, "system", "system", "user", "assistant", "system", "user"
    ):
        return "everywhere"
    return "first" if _writes(render, "system", *turns) else "nowhere"


def with_system(messages: Sequence[dict[str, Any]], form: SystemForm) -> list[dict[str, Any]]:
    """The messages, where system messages that a template does not write are the user's.

    System messages at the start are one message if `form` is "first". A later one continues the
    question or the result before it, so that the prompt up to there stays as in earlier requests.
    """
    if form == "everywhere":
        return list(messages)
    converted: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] not in _SYSTEM:
            converted.append(message)
            continue
        role = converted[-1]["role"] if converted else ""
        if role in ("user", "tool") or role in _SYSTEM:
            content = content_form.joined(converted[-1]["content"], message["content"])
            converted[-1] = {**converted[-1], "content": content}
        else:
            is_first = form == "first" and not converted
            converted.append(message if is_first else {**message, "role": "user"})
    return converted


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


def _writes(render: Callable[[list[dict[str, Any]]], str], *roles: str) -> bool:
    """Whether a template writes the contents of messages of these roles."""
    messages = [{"role": role, "content": f"probe_{number}_"} for number, role in enumerate(roles)]
    try:
        text = render(messages)
    except InvalidRequest:
        return False
    return all(message["content"] in text for message in messages)
