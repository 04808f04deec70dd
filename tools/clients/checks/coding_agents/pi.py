"""Pi: `pi --print` by chat completions."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import STREAMED_TOOLS, TOOL, Feature, main
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _ask(base: str, prompt: str, folder: Path) -> str:
    settings = folder / ".pi" / "agent"
    settings.mkdir(parents=True)

    def write(name: str, content: dict[str, Any]) -> None:
        (settings / name).write_text(json.dumps(content), encoding="utf-8")

    program, *arguments = COMMAND
    server = {"command": program, "args": arguments, "exposure": "direct"}
    write("mcp.json", {"mcpServers": {NAME: server}})
    provider = {
        "baseUrl": f"{base}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "any"}],
    }
    write("models.json", {"providers": {"hearth": provider}})
    return output("pi", "--model", "hearth/any", "--print", prompt, folder=folder, variables={})


def _read(file: str) -> Call:
    return "read", {"path": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"path": file, "edits": [{"oldText": old, "newText": new}]}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"mcp__{NAME}__{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
