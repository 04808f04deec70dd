"""The tools that Anthropic defines and clients run: a request names their type, not their schema.

Source: Anthropic's documentation of the bash, text editor and memory tools (2026).
"""

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string"}
_RANGE = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}


def _schema(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _editor(*commands: str, **more: Any) -> dict[str, Any]:
    return _schema(
        ("command",),
        command={"type": "string", "enum": list(commands)},
        path=_TEXT,
        view_range=_RANGE,
        file_text=_TEXT,
        old_str=_TEXT,
        new_str=_TEXT,
        insert_line={"type": "integer"},
        **more,
    )


_EDITS = ("view", "create", "str_replace", "insert")
_BASH = ("Run a command in a shell that stays open, or restart it.", _schema(
    (), command=_TEXT, restart={"type": "boolean"}
))  # fmt: skip
_EDIT = "View, create and edit text files: insert after a line, or replace a text that is unique."
_OLD_EDITOR = (_EDIT, _editor(*_EDITS, "undo_edit"))
_EDITOR = (_EDIT, _editor(*_EDITS, insert_text=_TEXT))
_MEMORY = (
    "Keep notes as files below /memories, which later conversations can read.",
    _editor(*_EDITS, "delete", "rename", insert_text=_TEXT, old_path=_TEXT, new_path=_TEXT),
)

# By type: the description and the schema of the arguments.
CLIENT_TOOLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _OLD_EDITOR,
    "text_editor_20250124": _OLD_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _MEMORY,
}


def as_custom_tool(tool: Any) -> Any:
    """A tool in a request: one of CLIENT_TOOLS gets its description and schema."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str) or kind not in CLIENT_TOOLS:
        return tool
    description, schema = CLIENT_TOOLS[kind]
    named = {"name": tool["name"]} if "name" in tool else {}
    return {**named, "description": description, "input_schema": schema}
