"""Continue's `cn -p` by chat completions."""

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
    model = {
        "name": "Hearth",
        "provider": "openai",
        "model": "any",
        "apiBase": f"{base}/v1",
        "apiKey": "none",
        "roles": ["chat", "edit", "apply"],
    }
    server = {"name": NAME, "command": program, "args": arguments}
    config = {
        "name": "Hearth",
        "version": "1.0.0",
        "schema": "v1",
        "models": [model],
        "mcpServers": [server],
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # which is also YAML
    command = ("cn", "--config", str(file), "--auto", "-p", prompt)
    return output(*command, folder=folder, variables={"CONTINUE_TELEMETRY_ENABLED": "0"})


def _read(file: str) -> Call:
    return "Read", {"filepath": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "Edit", {"file_path": file, "old_string": old, "new_string": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (TOOL["name"], CITY))


if __name__ == "__main__":
    main(features)
