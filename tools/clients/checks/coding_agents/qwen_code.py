"""Qwen Code: `qwen -p` by chat completions."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import STREAMED_TOOLS, TOOL, Feature, main
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# It lists the tools of MCP servers by name alone, and calls them by another tool.
_WEATHER = f"mcp__{NAME}__{TOOL['name']}"
_TOOL_CALLS: tuple[Call, ...] = (
    ("tool_search", {"query": f"select:{_WEATHER}"}),
    ("tool_call", {"name": _WEATHER, "arguments": CITY}),
)


def _ask(base: str, prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    settings = {"mcpServers": {NAME: {"command": program, "args": arguments}}}
    file = folder / ".qwen" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(settings), encoding="utf-8")
    variables = {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "any"}
    return output("qwen", "--yolo", "-p", prompt, folder=folder, variables=variables)


def _read(file: str) -> Call:
    return "read_file", {"file_path": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"file_path": file, "old_string": old, "new_string": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, *_TOOL_CALLS)


if __name__ == "__main__":
    main(features)
