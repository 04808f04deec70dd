"""Gemini CLI: `gemini -p` by Gemini's API."""

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


def _ask(base: str, prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    settings = {
        "mcpServers": {NAME: {"command": program, "args": arguments, "trust": True}},
        # By default it takes a server with another address for a gateway, and refuses it.
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    file = folder / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(settings), encoding="utf-8")
    variables = {
        "GOOGLE_GEMINI_BASE_URL": base,
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return output("gemini", "--yolo", "-p", prompt, folder=folder, variables=variables)


def _read(file: str) -> Call:
    return "read_file", {"file_path": file}


def _edit(file: str, old: str, new: str) -> Call:
    # In the order of the tool's schema.
    given = {"file_path": file, "instruction": "Edit.", "old_string": old, "new_string": new}
    return "replace", given


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"mcp_{NAME}_{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
