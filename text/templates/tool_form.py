"""The fields that a chat template reads of a tool.

OpenAI's API needs only a name. Some templates read the description and the parameters of every
tool, and fail without. A probe shows which do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULTS = {"description": "", "parameters": {"type": "object", "properties": {}}}


def takes_name_only(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes a tool with a name only; `render` raises InvalidRequest."""
    try:
        render([{"type": "function", "function": {"name": "probe"}}])
    except InvalidRequest:
        return False
    return True


def with_defaults(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool with an empty description and no parameters, where it has none or null.

    /apply-template takes other tools than functions with a name: the template refuses them.
    """
    function = tool.get("function")
    if not isinstance(function, dict) or "name" not in function:
        return tool
    present = {name: value for name, value in function.items() if value is not None}
    return {**tool, "function": {"name": function["name"], **_DEFAULTS, **present}}
