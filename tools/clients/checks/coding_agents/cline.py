"""Cline's command line by chat completions."""

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

_LOGIN = "cline auth openai-compatible --apikey none --modelid any --baseurl"


def _ask(base: str, prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    run = partial(output, folder=folder, variables={})
    run(*_LOGIN.split(), f"{base}/v1")
    settings = folder / ".cline" / "data" / "settings" / "cline_mcp_settings.json"
    config = {"mcpServers": {NAME: {"command": program, "args": arguments}}}
    settings.write_text(json.dumps(config), encoding="utf-8")
    try:
        return run("cline", prompt)
    finally:
        run("cline", "hub", "stop")  # the daemon that the prompt started


def _read(file: str) -> Call:
    return "read_files", {"files": [{"path": file}]}


def _edit(file: str, old: str, new: str) -> Call:
    return "editor", {"path": file, "old_text": old, "new_text": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"{NAME}__{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
